//! Emulates gdrdrv and CUDA GPUs for unmodified programs; `../README.md` has a map of the crates. This crate emulates
//! the driver and the GPUs' memory, with unit tests. Other crates have the functions that replace libc's and CUDA's.

#![allow(missing_docs, reason = "not published: a name that says it all needs no comment")]

pub mod abi;
pub mod config;
pub mod cuda;
pub mod driver;
pub mod errno;
pub mod fault;
pub mod gpu;
pub mod keeper;
pub mod session;
mod sockets;
pub mod version;

/// Returns a C string for a text that ends with its only NUL byte.
pub const fn c_text(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}
