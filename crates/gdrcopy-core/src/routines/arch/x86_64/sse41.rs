//! Copies by 16-byte streaming loads of SSE4.1, and plain stores.
//!
//! # Safety
//! The functions need a CPU with SSE4.1.

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_storeu_si128};

use crate::routines::arch::x86_64::prefetch;
use crate::routines::instructions::{Instructions, Work};
use crate::routines::routine::{BlockFn, CopyFn, Item};
use crate::routines::shape::Shaped;
use crate::routines::{loads, stores};

const BLOCK: usize = size_of::<__m128i>();

struct Sse41;

impl Instructions for Sse41 {
    const BLOCK: usize = BLOCK;
    const LOAD_BLOCK: BlockFn = copy_block;
    const STORE_LINE: BlockFn = stores::line::<__m128i>;
    const STORE_16: BlockFn = stores::block::<__m128i, 16>;
    const STORE_32: BlockFn = stores::block::<__m128i, 32>;
    const WRITE: CopyFn = write;
    const WRITE_ONE: CopyFn = write_one;
    const WRITE_PART: CopyFn = stores::unaligned::<__m128i, __m128i>;
    const READ: CopyFn = read;
    const FETCH_FOR_STORE: fn(*const u8) = prefetch::for_store;
}

/// # Safety
/// The contract of `Work::run`, and the CPU must have SSE4.1.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn run<W: Work>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool {
    // SAFETY: contract of this function.
    unsafe { W::run::<Sse41>(shape, count, item) }
}

/// # Safety
/// The contract of `routines::write`, and the CPU must have SSE4.1.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<__m128i, __m128i>(dst, src, len, stores::line::<__m128i>) }
}

/// # Safety
/// The contract of `routines::write`, and the CPU must have SSE4.1.
#[inline]
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn write_one(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::one_of_many::<__m128i, __m128i>(write, dst, src, len) }
}

/// # Safety
/// The contract of `routines::read`, and the CPU must have SSE4.1.
#[target_feature(enable = "sse4.1")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<BLOCK>(dst, src, len, copy_block) }
}

/// # Safety
/// Needs SSE4.1, 16 readable, aligned bytes at `src`, and 16 writable ones at `dst`.
#[inline]
#[target_feature(enable = "sse4.1")]
unsafe fn copy_block(dst: *mut u8, src: *const u8) {
    let block: __m128i;
    // SAFETY: the CPU has SSE4.1, a block is readable at `src`, which is aligned, and writable at `dst`:
    // contract of this function.
    unsafe {
        asm!(
            "movntdqa {}, [{}]",
            out(xmm_reg) block, in(reg) src,
            options(nostack, preserves_flags, readonly)
        );
        _mm_storeu_si128(dst.cast(), block);
    }
}
