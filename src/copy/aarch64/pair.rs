//! Pairs of general registers: 16-byte loads and stores (LDP, STP).

use core::arch::aarch64::uint8x16_t;
use core::arch::asm;

use super::{LINE, loads, stores};

const BLOCK: usize = 16;

/// # Safety
/// As for [`write_wc`](crate::copy::write_wc).
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the two ranges.
    unsafe {
        stores::by_line::<uint8x16_t>(dst, src, len, |to, from| {
            for at in (0..LINE).step_by(BLOCK) {
                copy_block(to.add(at), from.add(at));
            }
        });
    }
}

/// # Safety
/// As for [`read_wc`](crate::copy::read_wc).
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the two ranges.
    unsafe { loads::by_line::<BLOCK>(dst, src, len, |to, from| copy_block(to, from)) }
}

/// # Safety
/// `src` must be readable and `dst` writable for a block, and the device side aligned to it.
#[inline(always)]
unsafe fn copy_block(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller vouches for both sides.
    unsafe {
        asm!(
            "ldp {low}, {high}, [{src}]",
            "stp {low}, {high}, [{dst}]",
            low = out(reg) _, high = out(reg) _, src = in(reg) src, dst = in(reg) dst,
            options(nostack, preserves_flags)
        );
    }
}
