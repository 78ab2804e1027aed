//! cuGetErrorName and cuGetErrorString.

use std::ffi::{CStr, c_char};

use super::entry::without_init;
use crate::args::Out;
use crate::error::{Error, Result, TEXTS, Text};

/// Stores a text of a CUresult, or NULL if `error` is not a CUresult.
fn find(error: i32, to: Out<*const c_char>, pick: impl Fn(&Text) -> &'static CStr) -> Result {
    let found = TEXTS.iter().find(|text| text.value == error);
    to.set(found.map_or(std::ptr::null(), |text| pick(text).as_ptr()))?;
    found.map(|_| ()).ok_or(Error::INVALID_VALUE)
}

pub(crate) extern "C" fn cuGetErrorName(error: i32, text: Out<*const c_char>) -> i32 {
    without_init("cuGetErrorName", || find(error, text, |text| text.name))
}

pub(crate) extern "C" fn cuGetErrorString(error: i32, text: Out<*const c_char>) -> i32 {
    without_init("cuGetErrorString", || find(error, text, |text| text.text))
}
