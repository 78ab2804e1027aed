//! AVX2: 32-byte streaming loads, plain stores.
//!
//! # Safety
//! The functions need a CPU with AVX2, and an operating system that saves the YMM registers.

use core::arch::asm;
use core::arch::x86_64::{__m128i, __m256i, _mm256_storeu_si256};

use crate::routines::routine::Blocks;
use crate::routines::{loads, stores};

const BLOCK: usize = size_of::<__m256i>();

pub(super) const BLOCKS: Blocks = Blocks { size: BLOCK, load: load_blocks };

/// # Safety
/// Needs AVX2; the ranges are as for `write`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<__m128i, __m256i>(dst, src, len, store_line) }
}

/// # Safety
/// Needs AVX2, a readable `src` and a writable, aligned line `dst`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { stores::line::<__m256i>(dst, src) }
}

/// # Safety
/// Needs AVX2; the ranges are as for `read`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<BLOCK>(dst, src, len, copy_block) }
}

/// # Safety
/// Needs AVX2; the rest is as for `LoadBlocksFn`.
#[target_feature(enable = "avx2")]
unsafe fn load_blocks(buffer: *mut u8, blocks: &[*const u8]) {
    // SAFETY: contract of this function.
    unsafe { loads::listed::<BLOCK, 16>(buffer, blocks, copy_block) }
}

/// # Safety
/// Needs AVX2, a readable, aligned block `src` and a writable `dst`.
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
