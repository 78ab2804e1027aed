//! The replaced functions of libcuda, by the names under which programs look them up.

use std::ffi::c_void;

use gdremu_core::cuda;

macro_rules! replaced {
    ($($module:ident::$symbol:ident;)*) => {
        gdremu_preload::export! { $($module::$symbol;)* }

        /// The replacement of a symbol of libcuda.
        pub(crate) fn by_symbol(symbol: &str) -> Option<*mut c_void> {
            match symbol {
                $(stringify!($symbol) => Some($symbol as *mut c_void),)*
                _ => None,
            }
        }
    };
}

replaced! {
    proc_address::cuGetProcAddress;
    proc_address::cuGetProcAddress_v2;
    memory::cuMemAlloc_v2;
    memory::cuMemAllocPitch_v2;
    memory::cuMemFree_v2;
    memory::cuMemGetAddressRange_v2;
    memory::cuPointerSetAttribute;
    vmm::cuMemCreate;
    vmm::cuMemUnmap;
}

/// The replacement of the function that cuGetProcAddress finds in CUDA `version`.
pub(crate) fn by_name(name: &str, version: u32) -> Option<*mut c_void> {
    by_symbol(cuda::newest(name, version).ok()?.symbol)
}
