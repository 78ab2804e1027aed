//! The replaced functions of libcuda, by the names under which programs look them up, and the CUDA versions that have them.

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
    proc_address::cuGetProcAddress 11030;
    proc_address::cuGetProcAddress_v2 12000;
    memory::cuMemAlloc_v2 3020;
    memory::cuMemFree_v2 3020;
    memory::cuMemGetAddressRange_v2 3020;
    memory::cuPointerSetAttribute 6000;
    memory::cuMemCreate 10020;
    memory::cuMemUnmap 10020;
}

pub(crate) fn by_symbol(symbol: &str) -> Option<*mut c_void> {
    let found = FUNCTIONS.iter().find(|function| function.symbol == symbol);
    found.map(|function| function.address.cast_mut())
}

/// The replacement of the function that cuGetProcAddress finds in CUDA `version`.
pub(crate) fn by_name(name: &str, version: u32) -> Option<*mut c_void> {
    newest(FUNCTIONS, name, version).ok().map(|function| function.address.cast_mut())
}
