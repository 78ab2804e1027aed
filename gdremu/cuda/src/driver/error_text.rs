//! cuGetErrorName and cuGetErrorString.

use std::ffi::{CStr, c_char};

use crate::args::Out;
use crate::error::{Error, Result, TEXTS, Text};

/// Stores a text of a CUresult, or NULL if `error` is not a CUresult.
pub(super) fn find(error: i32, to: Out<*const c_char>, pick: impl Fn(&Text) -> &'static CStr) -> Result {
    let found = TEXTS.iter().find(|text| text.value == error);
    to.set(found.map_or(std::ptr::null(), |text| pick(text).as_ptr()))?;
    found.map(|_| ()).ok_or(Error::INVALID_VALUE)
}
