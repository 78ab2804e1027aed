//! AVX-512: streaming loads and non-temporal stores of whole lines.
//!
//! # Safety
//! The functions need a CPU with AVX-512 F and BW, and an operating system that saves the ZMM and
//! mask registers.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m512i, _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_storeu_si512,
};

use super::{LINE, stores};

/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for [`write_wc`](crate::copy::write_wc).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the CPU and the two ranges.
    unsafe { stores::by_line::<__m128i>(dst, src, len, |to, from| store_line(to, from)) }
}

/// Loads each line that the range touches once, and stores what is wanted of it straight from the
/// register.
///
/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for [`read_wc`](crate::copy::read_wc).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    let head = (src.addr().wrapping_neg() % LINE).min(len);
    let tail = (len - head) % LINE;
    let lines = head..len - tail;

    // SAFETY: head, lines and tail make up the range that the caller vouches for.
    unsafe {
        copy_part(dst, src, head);
        for at in lines.clone().step_by(LINE) {
            _mm512_storeu_si512(dst.add(at).cast(), load_line(src.add(at)));
        }
        copy_part(dst.add(lines.end), src.add(lines.end), tail);
    }
}

/// Copies the `len` bytes at `src`, all of one line.
///
/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for [`read_wc`](crate::copy::read_wc).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_part(dst: *mut u8, src: *const u8, len: usize) {
    if len > 0 {
        let offset = src.addr() % LINE;
        let wanted = u64::MAX >> (LINE - len) << offset;
        // SAFETY: the line holds the bytes at `src`. The mask lets through `len` bytes, the first
        // of which goes to `dst`; the others are not stored and cannot fault.
        unsafe {
            let line = load_line(src.wrapping_sub(offset));
            _mm512_mask_storeu_epi8(dst.wrapping_sub(offset).cast(), wanted, line);
        }
    }
}

/// # Safety
/// Needs AVX-512 F and a readable, aligned line `src`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_line(src: *const u8) -> __m512i {
    let line: __m512i;
    // SAFETY: the caller vouches for the CPU and the line.
    unsafe {
        asm!(
            "vmovntdqa {}, [{}]",
            out(zmm_reg) line, in(reg) src,
            options(nostack, preserves_flags, readonly)
        );
    }
    line
}

/// # Safety
/// Needs AVX-512 F, a readable `src` and a writable, aligned line `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller vouches for the CPU and for both sides.
    unsafe {
        let line = _mm512_loadu_si512(src.cast());
        asm!(
            "vmovntdq [{}], {}",
            in(reg) dst, in(zmm_reg) line,
            options(nostack, preserves_flags)
        );
    }
}
