//! gdremu's replacements of libcuda's functions, by the names under which programs look them up.
#![forbid(unsafe_code)]

use std::ffi::c_void;

use gdremu_core::cuda::name_of;

macro_rules! replaced {
    ($($module:ident::$symbol:ident;)*) => {
        gdremu_preload::export! { $($module::$symbol;)* }

        const FUNCTIONS: &[(&str, *const c_void)] = &[$((stringify!($symbol), $symbol as *const c_void),)*];
    };
}

replaced! {
    functions::cuGetProcAddress_v2;
    functions::cuMemAlloc_v2;
    functions::cuMemFree_v2;
    functions::cuMemGetAddressRange_v2;
    functions::cuPointerSetAttribute;
    functions::cuMemCreate;
    functions::cuMemUnmap;
}

pub(crate) fn by_symbol(symbol: &str) -> Option<*mut c_void> {
    let (_, ours) = FUNCTIONS.iter().find(|(known, _)| *known == symbol)?;
    Some(ours.cast_mut())
}

pub(crate) fn by_name(name: &str) -> Option<*mut c_void> {
    let (_, ours) = FUNCTIONS.iter().find(|(symbol, _)| name_of(symbol) == name)?;
    Some(ours.cast_mut())
}
