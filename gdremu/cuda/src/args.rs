//! Pointers that C programs pass to exported functions. By CUDA's contract, a pointer is NULL, or points to an object
//! (or an array) of the type in the function's prototype. The object exists until the call returns.

use std::ffi::{CStr, c_char};
use std::{ptr, slice};

use crate::error::{Error, Result, ensure, valid};

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Makes an `Out` from a local variable, so that this library can call an exported function itself.
    pub(crate) fn to(place: &mut T) -> Out<T> {
        Out(place)
    }

    pub(crate) fn set(self, value: T) -> Result {
        self.check()?;
        self.set_if_wanted(value);
        Ok(())
    }

    /// Stores the result of `make`. If the pointer is NULL, fails without calling `make`.
    pub(crate) fn fill(self, make: impl FnOnce() -> Result<T>) -> Result {
        self.check()?;
        self.set(make()?)
    }

    /// Stores a result, or does nothing if the program has passed NULL because it does not need the result.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not NULL, so it is the program's memory for a T (see the head of this file).
            unsafe { self.0.write_unaligned(value) };
        }
    }

    pub(crate) fn set_all(self, values: impl Iterator<Item = T>) -> Result {
        self.check()?;
        for (index, value) in values.enumerate() {
            // SAFETY: the pointer is not NULL, so it has room for all that the call stores (see the head of this file).
            unsafe { self.0.add(index).write_unaligned(value) };
        }
        Ok(())
    }

    pub(crate) fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Returns the same pointer for reading. Some functions read a value from the place where they store their result.
    pub(crate) fn as_in(self) -> In<T> {
        In(self.0)
    }

    pub(crate) fn check(self) -> Result {
        ensure(!self.0.is_null(), Error::INVALID_VALUE)
    }
}

impl Out<()> {
    pub(crate) const NOWHERE: Out<()> = Out(ptr::dangling_mut());
}

impl Out<*const c_char> {
    /// Stores the address of a text. If there is no text, stores NULL and fails.
    pub(crate) fn set_text_or_null(self, text: Option<&'static CStr>) -> Result {
        self.set(ptr::null())?;
        self.set(valid(text)?.as_ptr())
    }
}

impl Out<c_char> {
    /// Stores a text and its terminating NUL. If they need more than `room` bytes, cuts the text.
    pub(crate) fn set_text(self, text: &str, room: i32) -> Result {
        self.check()?;
        ensure(room > 0, Error::INVALID_VALUE)?;
        let len = text.len().min(room as usize - 1);
        // SAFETY: the pointer is not NULL, so the program guarantees that `room` bytes can be written there.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
            self.0.cast::<u8>().add(len).write(0);
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) const fn null() -> In<T> {
        In(ptr::null())
    }

    pub(crate) fn of<U>(self) -> In<U> {
        In(self.0.cast())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn get(self) -> Result<T> {
        self.at(0)
    }

    pub(crate) fn at(self, index: usize) -> Result<T> {
        ensure(!self.is_null(), Error::INVALID_VALUE)?;
        // SAFETY: the pointer is not NULL, so it points to all Ts that the call reads (see the head of this file).
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl In<c_char> {
    pub(crate) fn from_text(text: &CStr) -> In<c_char> {
        In(text.as_ptr())
    }

    /// Reads a text argument, which must be UTF-8.
    pub(crate) fn text(&self) -> Result<&str> {
        ensure(!self.is_null(), Error::INVALID_VALUE)?;
        // SAFETY: the pointer is not NULL, so it is a NUL-terminated text of the program.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Error::INVALID_VALUE)
    }
}

impl In<u8> {
    /// Makes a pointer from an address that C has passed as a number.
    pub(crate) fn from_address(address: usize) -> In<u8> {
        In(ptr::with_exposed_provenance(address))
    }

    /// Returns `len` bytes of the program's memory. Fails if `len` exceeds `isize::MAX`, the limit of a slice.
    pub(crate) fn bytes(&self, len: usize) -> Result<&[u8]> {
        ensure(!self.is_null() && isize::try_from(len).is_ok(), Error::INVALID_VALUE)?;
        // SAFETY: the pointer is not NULL, so the program passed `len` bytes (see the head of this file).
        Ok(unsafe { slice::from_raw_parts(self.0, len) })
    }
}
