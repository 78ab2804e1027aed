//! Copies whole cache lines by four vector registers of NEON, which are loaded and stored in pairs of 32 bytes.

use core::arch::aarch64::uint8x16_t;
use core::arch::asm;

use crate::routines::instructions::Instructions;
use crate::routines::routine::{BlockFn, CopyFn, LINE};
use crate::routines::{loads, stores};

pub(super) struct Neon;

impl Instructions for Neon {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = copy_line;
    const STORE_LINE: BlockFn = copy_line;
    const STORE_16: BlockFn = stores::block::<uint8x16_t, 16>;
    const STORE_32: BlockFn = stores::block::<uint8x16_t, 32>;
    const WRITE: CopyFn = write;
    const READ: CopyFn = read;
}

/// # Safety
/// The contract of `routines::write`.
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<uint8x16_t, uint8x16_t>(dst, src, len, copy_line) }
}

/// # Safety
/// The contract of `routines::read`.
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<LINE>(dst, src, len, copy_line) }
}

/// # Safety
/// `src` must be readable and `dst` writable for a cache line. The address in device memory must be aligned to a line.
#[inline(always)]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    // SAFETY: a line is readable at `src` and writable at `dst`: contract of this function. NEON is part of AArch64.
    unsafe {
        asm!(
            "ldp {a:q}, {b:q}, [{src}]",
            "ldp {c:q}, {d:q}, [{src}, #32]",
            "stp {a:q}, {b:q}, [{dst}]",
            "stp {c:q}, {d:q}, [{dst}, #32]",
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,
            src = in(reg) src, dst = in(reg) dst,
            options(nostack, preserves_flags)
        );
    }
}
