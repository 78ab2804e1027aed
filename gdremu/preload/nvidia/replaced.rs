//! The replaced functions of libcuda, by the names under which programs look them up, and the CUDA versions that have them.
#![forbid(unsafe_code)]

use std::ffi::c_void;

use gdremu_core::cuda::{Function, newest};

macro_rules! replaced {
    ($($module:ident::$symbol:ident $since:literal;)*) => {
        gdremu_preload::export! { $($module::$symbol;)* }

        const FUNCTIONS: &[Function] = &[
            $(Function { symbol: stringify!($symbol), since: $since, address: $symbol as *const c_void },)*
        ];
    };
}

replaced! {
    functions::cuGetProcAddress 11030;
    functions::cuGetProcAddress_v2 12000;
    functions::cuMemAlloc_v2 3020;
    functions::cuMemFree_v2 3020;
    functions::cuMemGetAddressRange_v2 3020;
    functions::cuPointerSetAttribute 6000;
    functions::cuMemCreate 10020;
    functions::cuMemUnmap 10020;
}

pub(crate) fn by_symbol(symbol: &str) -> Option<*mut c_void> {
    let function = FUNCTIONS.iter().find(|function| function.symbol == symbol)?;
    Some(function.address.cast_mut())
}

/// The replacement of the function that cuGetProcAddress finds in CUDA `version`.
pub(crate) fn by_name(name: &str, version: u32) -> Option<*mut c_void> {
    let function = newest(FUNCTIONS, name, version).ok()?;
    Some(function.address.cast_mut())
}
