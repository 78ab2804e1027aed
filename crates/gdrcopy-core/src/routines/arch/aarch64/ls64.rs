//! LS64: a whole line in one load or store of eight general registers (LD64B, ST64B).
//!
//! The instructions fault on memory that is neither non-cacheable nor device memory.
//!
//! # Safety
//! The functions need a CPU with LS64 and an operating system that enables it.

use core::arch::aarch64::uint8x16_t;
use core::arch::asm;

use crate::routines::instructions::Instructions;
use crate::routines::routine::{BlockFn, CopyFn, LINE};
use crate::routines::{loads, stores};

pub(super) struct Ls64;

impl Instructions for Ls64 {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = load_line;
    const STORE_LINE: BlockFn = store_line;
    const WRITE: CopyFn = write;
    const READ: CopyFn = read;
}

/// # Safety
/// Needs LS64; the ranges are as for `write`.
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<uint8x16_t, uint8x16_t>(dst, src, len, store_line) }
}

/// # Safety
/// Needs LS64; the ranges are as for `read`.
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<LINE>(dst, src, len, load_line) }
}

// The assembler of stable Rust has no LS64. So the two instructions are written as their encodings
// with X0 to X7 for the data and X8 for the address.

/// # Safety
/// Needs LS64, a readable `src` and a writable, aligned line `dst`.
#[inline]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the CPU has LS64, a line is readable at `src` and writable at `dst`, which is aligned:
    // contract of this function.
    unsafe {
        asm!(
            "ldp x0, x1, [{src}]",
            "ldp x2, x3, [{src}, #16]",
            "ldp x4, x5, [{src}, #32]",
            "ldp x6, x7, [{src}, #48]",
            ".inst 0xf83f9100", // st64b x0, [x8]
            src = in(reg) src, in("x8") dst,
            out("x0") _, out("x1") _, out("x2") _, out("x3") _,
            out("x4") _, out("x5") _, out("x6") _, out("x7") _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// Needs LS64, a readable, aligned line `src` and a writable `dst`.
#[inline]
unsafe fn load_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the CPU has LS64, a line is writable at `dst` and readable at `src`, which is aligned:
    // contract of this function.
    unsafe {
        asm!(
            ".inst 0xf83fd100", // ld64b x0, [x8]
            "stp x0, x1, [{dst}]",
            "stp x2, x3, [{dst}, #16]",
            "stp x4, x5, [{dst}, #32]",
            "stp x6, x7, [{dst}, #48]",
            dst = in(reg) dst, in("x8") src,
            out("x0") _, out("x1") _, out("x2") _, out("x3") _,
            out("x4") _, out("x5") _, out("x6") _, out("x7") _,
            options(nostack, preserves_flags)
        );
    }
}
