//! Errors of the runtime. They are those of the driver and a few more, the last of each thread, and
//! their names.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use crate::error::{Error, TEXTS, Text};

/// cudaError_t values that no function of the driver API returns; all others are CUresults.
pub(crate) const INVALID_SYMBOL: Error = Error(13);
pub(crate) const INVALID_COPY_DIRECTION: Error = Error(21);
pub(crate) const MISSING_CONFIGURATION: Error = Error(52);
pub(crate) const INVALID_DEVICE_FUNCTION: Error = Error(98);

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Makes an error the last one of this thread. Work that is not finished is no error.
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

/// Errors that only the runtime has.
const OWN: &[Text] = &[
    own(Error(9), c"cudaErrorInvalidConfiguration", UNKNOWN),
    own(INVALID_SYMBOL, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    own(INVALID_COPY_DIRECTION, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    own(MISSING_CONFIGURATION, c"cudaErrorMissingConfiguration", c"__global__ function call is not configured"),
    own(INVALID_DEVICE_FUNCTION, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
];

const UNKNOWN: &CStr = c"unrecognized error code";

const fn own(Error(value): Error, runtime: &'static CStr, text: &'static CStr) -> Text {
    Text { value, name: c"", runtime, text }
}

fn find(error: i32) -> Option<&'static Text> {
    OWN.iter().chain(TEXTS).find(|known| known.value == error)
}

pub(crate) extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    match find(error) {
        Some(text) if !text.runtime.is_empty() => text.runtime.as_ptr(),
        _ => UNKNOWN.as_ptr(),
    }
}

pub(crate) extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    match find(error) {
        Some(text) => text.text.as_ptr(),
        None => UNKNOWN.as_ptr(),
    }
}
