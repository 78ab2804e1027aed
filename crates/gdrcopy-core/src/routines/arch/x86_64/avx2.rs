//! Copies by 32-byte streaming loads of AVX2, and plain stores.
//!
//! # Safety
//! The functions need a CPU with AVX2, and an operating system that saves the YMM registers.

use core::arch::asm;
use core::arch::x86_64::{__m128i, __m256i, _mm_storeu_si128, _mm256_storeu_si256};

use crate::routines::arch::x86_64::prefetch;
use crate::routines::instructions::{Instructions, Work};
use crate::routines::routine::{BlockFn, CopyFn, Item};
use crate::routines::shape::Shaped;
use crate::routines::{loads, stores};

const BLOCK: usize = size_of::<__m256i>();

struct Avx2;

impl Instructions for Avx2 {
    const BLOCK: usize = BLOCK;
    const LOAD_BLOCK: BlockFn = copy_block;
    const SMALL: usize = size_of::<__m128i>();
    const LOAD_SMALL: BlockFn = load_16;
    const STORE_LINE: BlockFn = store_line;
    const STORE_16: BlockFn = stores::block::<__m128i, 16>;
    const STORE_32: BlockFn = stores::block::<__m256i, 32>;
    const WRITE: CopyFn = write;
    const WRITE_ONE: CopyFn = write_one;
    const WRITE_PART: CopyFn = stores::unaligned::<__m128i, __m256i>;
    const READ: CopyFn = read;
    const FETCH_FOR_STORE: fn(*const u8) = prefetch::for_store;
}

/// # Safety
/// The contract of `Work::run`, and the CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn run<W: Work>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool {
    // SAFETY: contract of this function.
    unsafe { W::run::<Avx2>(shape, count, item) }
}

/// # Safety
/// The contract of `routines::write`, and the CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<__m128i, __m256i>(dst, src, len, store_line) }
}

/// # Safety
/// Needs AVX2, a readable cache line at `src`, and a writable, aligned one at `dst`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { stores::line::<__m256i>(dst, src) }
}

/// # Safety
/// The contract of `routines::write`, and the CPU must have AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write_one(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::one_of_many::<__m128i, __m256i>(write, dst, src, len) }
}

/// # Safety
/// The contract of `routines::read`, and the CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<BLOCK>(dst, src, len, copy_block) }
}

/// # Safety
/// Needs AVX2, 32 readable, aligned bytes at `src`, and 32 writable ones at `dst`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn copy_block(dst: *mut u8, src: *const u8) {
    let block: __m256i;
    // SAFETY: the CPU has AVX2, a block is readable at `src`, which is aligned, and writable at `dst`:
    // contract of this function.
    unsafe {
        asm!(
            "vmovntdqa {}, [{}]",
            out(ymm_reg) block, in(reg) src,
            options(nostack, preserves_flags, readonly)
        );
        _mm256_storeu_si256(dst.cast(), block);
    }
}

/// # Safety
/// Needs AVX, 16 readable, aligned bytes at `src` and 16 writable ones at `dst`.
#[inline]
#[target_feature(enable = "avx")]
pub(super) unsafe fn load_16(dst: *mut u8, src: *const u8) {
    let bytes: __m128i;
    // SAFETY: contract of this function.
    unsafe {
        asm!(
            "vmovntdqa {}, [{}]",
            out(xmm_reg) bytes, in(reg) src,
            options(nostack, preserves_flags, readonly)
        );
        _mm_storeu_si128(dst.cast(), bytes);
    }
}
