//! The replaced functions of libcuda, by the names under which programs look them up.

use std::ffi::c_void;

/// A replaced function.
struct Entry {
    /// As cuGetProcAddress knows it.
    name: &'static str,
    /// The CUDA version that it came with: 3020 for 3.2.
    since: i32,
    /// As libcuda exports it.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "dlsym is replaced on x86-64 only")
    )]
    symbol: &'static str,
    address: fn() -> *mut c_void,
}

macro_rules! entries {
    ($($name:literal $since:literal $module:ident::$symbol:ident;)*) => {
        gdremu_preload::export! { $($module::$symbol;)* }

        const ENTRIES: &[Entry] = &[$(Entry {
            name: $name,
            since: $since,
            symbol: stringify!($symbol),
            address: || $symbol as *mut c_void,
        }),*];
    };
}

// Later versions of a function stand behind earlier ones.
entries! {
    "cuGetProcAddress" 11030 proc_address::cuGetProcAddress;
    "cuGetProcAddress" 12000 proc_address::cuGetProcAddress_v2;
    "cuMemAlloc" 3020 memory::cuMemAlloc_v2;
    "cuMemAllocPitch" 3020 memory::cuMemAllocPitch_v2;
    "cuMemCreate" 10020 vmm::cuMemCreate;
    "cuMemFree" 3020 memory::cuMemFree_v2;
    "cuMemGetAddressRange" 3020 memory::cuMemGetAddressRange_v2;
    "cuMemUnmap" 10020 vmm::cuMemUnmap;
    "cuPointerSetAttribute" 6000 memory::cuPointerSetAttribute;
}

/// The replacement of a symbol of libcuda.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "dlsym is replaced on x86-64 only")
)]
pub(crate) fn by_symbol(symbol: &[u8]) -> Option<*mut c_void> {
    let entry = ENTRIES
        .iter()
        .find(|entry| entry.symbol.as_bytes() == symbol)?;
    Some((entry.address)())
}

/// The replacement of the function that cuGetProcAddress finds in CUDA `version`.
pub(crate) fn by_name(name: &[u8], version: i32) -> Option<*mut c_void> {
    let mut named = ENTRIES
        .iter()
        .filter(|entry| entry.name.as_bytes() == name && entry.since <= version);
    Some((named.next_back()?.address)())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_libcudas() {
        let ours = cuMemAlloc_v2 as *mut c_void;
        assert_eq!(by_symbol(b"cuMemAlloc_v2"), Some(ours));
        assert_eq!(by_symbol(b"cuMemAlloc"), None, "that has 32-bit addresses");
        assert_eq!(by_symbol(b"cuInit"), None);
    }

    #[test]
    fn names_are_of_a_version() {
        let ours = cuMemAlloc_v2 as *mut c_void;
        assert_eq!(by_name(b"cuMemAlloc", 13000), Some(ours));
        assert_eq!(by_name(b"cuMemAlloc", 2000), None);
        let first = cuGetProcAddress as *mut c_void;
        let second = cuGetProcAddress_v2 as *mut c_void;
        assert_eq!(by_name(b"cuGetProcAddress", 11080), Some(first));
        assert_eq!(by_name(b"cuGetProcAddress", 12000), Some(second));
    }
}
