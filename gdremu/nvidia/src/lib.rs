//! The part of gdremu inside a program on real GPUs. It is preloaded: libc's functions serve
//! /dev/gdrdrv, and some functions of libcuda are replaced so that the program's memory can be
//! exported, which pinning it takes.
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! memory         cuMemAlloc and its like: memory from the provider
//! vmm            cuMemCreate and cuMemUnmap: the program's own VMM memory
//!   entry        what each of them begins with
//! ```
//!
//! A program finds them by one of three ways:
//!
//! ```text
//! linked with libcuda   this object's symbols come before libcuda's
//! dlsym                 dlsym       ──┐
//! cuGetProcAddress      proc_address ─┴─ replaced: which names are ours
//! ```
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

#[cfg(target_arch = "x86_64")]
mod dlsym;
mod entry;
mod memory;
mod proc_address;
mod replaced;
mod vmm;

// Linked in for what it exports, too.
use gdremu_preload::state;
