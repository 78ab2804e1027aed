//! The preload library for programs on real GPUs. libc hooks serve /dev/gdrdrv, and some functions of
//! libcuda are replaced, because memory must be exportable to be pinned.
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! functions        the replaced functions, over the provider
//! ```
//!
//! A program finds them by one of three methods:
//!
//! ```text
//! linked with libcuda   this object's symbols come before libcuda's
//! dlsym                 dlsym       ──┐
//! cuGetProcAddress      functions ────┴─ replaced: the table of replaced names
//! ```
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

#[cfg(target_arch = "x86_64")]
mod dlsym;
mod functions;
mod replaced;

// Also linked in for its exports.
use gdremu_preload::state;
