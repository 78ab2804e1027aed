//! AVX-512: streaming loads and plain stores of whole lines.
//!
//! # Safety
//! The functions need a CPU with AVX-512 F and BW, and an operating system that saves the ZMM and
//! mask registers.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm512_mask_storeu_epi8, _mm512_setzero_si512, _mm512_storeu_si512,
};

use crate::routines::arch::x86_64::{avx2, prefetch};
use crate::routines::instructions::{Instructions, Work};
use crate::routines::loads::StackLine;
use crate::routines::routine::{BlockFn, CopyFn, LINE};
use crate::routines::stores;

struct Avx512;

impl Instructions for Avx512 {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = copy_line;
    const LOAD_PART: CopyFn = load_part;
    const SMALL: usize = size_of::<__m128i>();
    const LOAD_SMALL: BlockFn = avx2::load_16;
    const STORE_LINE: BlockFn = store_line;
    const WRITE: CopyFn = write;
    const READ: CopyFn = read;
    const FETCH_FOR_STORE: fn(*const u8) = prefetch::for_store;
}

/// # Safety
/// Needs AVX-512 F and BW; the work is as for `Work::run`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn run(work: impl Work) {
    // SAFETY: contract of this function.
    unsafe { work.run::<Avx512>() }
}

/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for `write`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<__m128i, __m256i>(dst, src, len, store_line) }
}

/// # Safety
/// Needs AVX-512 F, a readable `src` and a writable, aligned line `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { stores::line::<__m512i>(dst, src) }
}

/// Lines that are loaded before the first of them is stored. One core keeps that number in flight.
const BATCH: usize = 16;

/// Loads each line that the range touches once, and stores what is wanted of it straight from the
/// register.
///
/// Loads and stores share the same buffers. A store whose line is in no near cache delays the loads after it by
/// a whole round trip. So from the second batch on, the lines to store to are fetched before the next loads are
/// issued. With an H200 that saves 8 to 27% of the time of reads of 4 and 16 MiB. The first batch does not need
/// it, because its stores may complete after the call.
///
/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for `read`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    let head = (src.addr().wrapping_neg() % LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    let batches_end = end - (end - head) % (BATCH * LINE);

    // SAFETY: head, batches, lines and tail make up the range of this function's contract.
    unsafe {
        // Calls that end this function, so it keeps no stack frame.
        if head > 0 && crosses_page(dst, src) {
            return read_head_by_stack(dst, src, len, head);
        }
        copy_part(dst, src, head);
        for at in (head..batches_end).step_by(BATCH * LINE) {
            if at > head {
                fetch_for_stores(dst.add(at));
            }
            copy_batch(dst.add(at), src.add(at));
        }
        for at in (batches_end..end).step_by(LINE) {
            copy_line(dst.add(at), src.add(at));
        }
        if tail > 0 && crosses_page(dst.add(end), src.add(end)) {
            return copy_part_by_stack(dst.add(end), src.add(end), tail);
        }
        copy_part(dst.add(end), src.add(end), tail);
    }
}

/// # Safety
/// Needs AVX-512 F and BW, a batch of readable, aligned lines at `src` and the same number of writable
/// bytes at `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_batch(dst: *mut u8, src: *const u8) {
    // SAFETY: the CPU has AVX-512, `BATCH` lines are readable at `src`, which is aligned, and writable at
    // `dst`: contract of this function.
    unsafe {
        let mut lines = [_mm512_setzero_si512(); BATCH];
        for (n, line) in lines.iter_mut().enumerate() {
            *line = load_line(src.add(n * LINE));
        }
        for (n, line) in lines.into_iter().enumerate() {
            _mm512_storeu_si512(dst.add(n * LINE).cast(), line);
        }
    }
}

/// Fetches the lines of the batch at `dst`, which is about to be stored. The address may be invalid, since this
/// never faults.
#[inline]
fn fetch_for_stores(dst: *const u8) {
    for n in 0..BATCH {
        prefetch::for_store(dst.wrapping_add(n * LINE));
    }
}

/// Copies the 1 to 64 bytes at `src`, all of one line.
///
/// # Safety
/// The contract of [`copy_part`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn load_part(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if crosses_page(dst, src) {
            copy_part_by_stack(dst, src, len);
        } else {
            copy_part(dst, src, len);
        }
    }
}

/// Copies the `len` bytes at `src`, all of one line.
///
/// # Safety
/// Needs AVX-512 F and BW; the ranges are as for `read`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_part(dst: *mut u8, src: *const u8, len: usize) {
    if len > 0 {
        // SAFETY: contract of this function; the line holds the bytes at `src`.
        unsafe {
            let line = load_line(src.wrapping_sub(src.addr() % LINE));
            store_part(dst, src, len, line);
        }
    }
}

/// Stores the bytes of `line` that come from the `len` bytes at `src`, 1 to 64, all of that line.
///
/// # Safety
/// Needs AVX-512 F and BW, and `len` writable bytes at `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store_part(dst: *mut u8, src: *const u8, len: usize, line: __m512i) {
    let offset = src.addr() % LINE;
    let mask = u64::MAX >> (LINE - len) << offset;
    // SAFETY: the mask lets through `len` bytes, with the first going to `dst`; the others are not stored and
    // cannot fault.
    unsafe { _mm512_mask_storeu_epi8(dst.wrapping_sub(offset).cast(), mask, line) }
}

/// Returns whether the masked store of [`copy_part`] would cross a page. If one of the two pages is not
/// accessible, or was never accessed, the CPU suppresses the fault in microcode. That takes longer than the rest
/// of a small copy. Host buffers often start or end at a page.
#[inline]
fn crosses_page(dst: *mut u8, src: *const u8) -> bool {
    const SMALLEST_PAGE: usize = 4096;
    let stored_to = dst.addr().wrapping_sub(src.addr() % LINE);
    stored_to % SMALLEST_PAGE > SMALLEST_PAGE - LINE
}

/// [`read`] of a range whose first `head` bytes, up to a line, must not be stored under a mask.
///
/// # Safety
/// The contract of [`read`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn read_head_by_stack(dst: *mut u8, src: *const u8, len: usize, head: usize) {
    // SAFETY: contract of this function; `head` is at most `len`.
    unsafe {
        copy_part_by_stack(dst, src, head);
        read(dst.add(head), src.add(head), len - head);
    }
}

/// [`copy_part`] without a masked store.
///
/// # Safety
/// The contract of [`copy_part`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_part_by_stack(dst: *mut u8, src: *const u8, len: usize) {
    let mut line = StackLine::new();
    // SAFETY: contract of this function.
    unsafe {
        line.load(LINE, src, len, copy_line);
        line.store(dst, src, len);
    }
}

/// # Safety
/// Needs AVX-512 F, a readable, aligned line `src` and a writable line `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { _mm512_storeu_si512(dst.cast(), load_line(src)) }
}

/// # Safety
/// Needs AVX-512 F and a readable, aligned line `src`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_line(src: *const u8) -> __m512i {
    let line: __m512i;
    // SAFETY: the CPU has AVX-512 F, and the line at `src` is readable and aligned: contract of this function.
    unsafe {
        asm!(
            "vmovntdqa {}, [{}]",
            out(zmm_reg) line, in(reg) src,
            options(nostack, preserves_flags, readonly)
        );
    }
    line
}
