//! Host memory of Python objects.

use std::ffi::{CStr, c_int};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

/// The contiguous bytes of a Python object. They do not move, and contain no references to Python objects.
pub(crate) struct Host {
    /// The Python object fills in this struct, and may store pointers to the struct in it. So the struct must not move.
    view: Box<ffi::Py_buffer>,
}

impl Host {
    /// Requests the bytes of an object by the buffer protocol. `access` is PyBUF_SIMPLE or PyBUF_WRITABLE.
    pub(crate) fn get(object: &Bound<'_, PyAny>, access: c_int) -> PyResult<Host> {
        let flags = access | ffi::PyBUF_ND;
        let host = match Host::request(object, flags | ffi::PyBUF_FORMAT) {
            // NumPy has no format for types such as datetime64 and bfloat16. For these, only the bytes are requested.
            Err(error) if error.is_instance_of::<PyValueError>(object.py()) && has_plain_type(object) => {
                return Host::request(object, flags);
            }
            result => result?,
        };
        let format = host.view.format;
        // SAFETY: the format of a filled view is NULL or a C string.
        if !format.is_null() && has_objects(unsafe { CStr::from_ptr(format) }) {
            return Err(PyTypeError::new_err("pass a buffer without Python objects"));
        }
        Ok(host)
    }

    fn request(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Host> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the object is live, and the view is a valid struct that nothing else uses.
        match unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Host { view }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.view.buf.cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.view.len.unsigned_abs()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the view was filled in, and is released only here. Callers drop it as they return, when they hold
        // the GIL.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.view) }
    }
}

/// Returns whether the items of an object have a NumPy type, and contain no references to Python objects.
fn has_plain_type(object: &Bound<'_, PyAny>) -> bool {
    let has_objects = || object.getattr("dtype")?.getattr("hasobject")?.extract();
    matches!(has_objects(), Ok(false))
}

/// Returns whether items of this format contain Python objects, for which the letter O stands. An O in a name, between
/// two colons, counts only after `<` or `>`: ctypes writes objects like that, and its names can contain colons.
fn has_objects(format: &CStr) -> bool {
    let mut is_name = false;
    let mut before = 0;
    for &byte in format.to_bytes() {
        if byte == b':' {
            is_name = !is_name;
        } else if byte == b'O' && (!is_name || before == b'<' || before == b'>') {
            return true;
        }
        before = byte;
    }
    false
}
