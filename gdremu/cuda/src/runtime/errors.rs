//! The runtime's errors: the last error of each thread, and the names of all errors.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use crate::error::{self, Error};

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Stores an error as this thread's last one, and returns it. NOT_READY is not stored, because it is no failure.
pub(crate) fn remember(error: i32) -> i32 {
    if Error(error) != Error::NOT_READY {
        LAST.set(error);
    }
    error
}

pub(crate) extern "C" fn cudaGetLastError() -> i32 {
    LAST.replace(0)
}

pub(crate) extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST.get()
}

const UNKNOWN: &CStr = c"unrecognized error code";

pub(crate) extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    match error::text(error) {
        Some(text) if !text.runtime.is_empty() => text.runtime.as_ptr(),
        _ => UNKNOWN.as_ptr(),
    }
}

pub(crate) extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    match error::text(error) {
        Some(text) => text.text.as_ptr(),
        None => UNKNOWN.as_ptr(),
    }
}
