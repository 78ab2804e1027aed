//! Copies by AVX-512's streaming loads and plain stores of whole lines.
//!
//! # Safety
//! The functions need a CPU with AVX-512 F and BW, and an operating system that saves the ZMM and mask registers.

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm512_cmplt_epi64_mask, _mm512_loadu_si512, _mm512_mask_mov_epi64,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_maskz_mov_epi64, _mm512_or_si512, _mm512_reduce_or_epi64,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_sub_epi64,
};

use crate::routines::arch::x86_64::{avx2, prefetch};
use crate::routines::instructions::{Instructions, Work};
use crate::routines::loads::StackLine;
use crate::routines::routine::{BlockFn, CopyFn, Item, LINE};
use crate::routines::shape::{CheckFn, Fields, Shaped};
use crate::routines::stores;

struct Avx512;

impl Instructions for Avx512 {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = copy_line;
    const SMALL: usize = size_of::<__m128i>();
    const LOAD_SMALL: BlockFn = avx2::load_16;
    const STORE_LINE: BlockFn = store_line;
    const STORE_16: BlockFn = stores::block::<__m128i, 16>;
    const STORE_32: BlockFn = stores::block::<__m256i, 32>;
    const WRITE: CopyFn = write;
    const WRITE_ONE: CopyFn = write_one;
    const WRITE_PART: CopyFn = write_part;
    const READ: CopyFn = read;
    const CHECK: CheckFn = check;
    const FETCH_FOR_STORE: fn(*const u8) = prefetch::for_store;
}

/// # Safety
/// The contract of `Work::run`, and the CPU must have AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn run<W: Work>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool {
    // SAFETY: contract of this function.
    unsafe { W::run::<Avx512>(shape, count, item) }
}

/// # Safety
/// The contract of `routines::write`, and the CPU must have AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<__m128i, __m256i>(dst, src, len, store_line) }
}

/// # Safety
/// Needs AVX-512 F, a readable cache line at `src`, and a writable, aligned one at `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { stores::line::<__m512i>(dst, src) }
}

/// Writes up to 256 bytes by a few wide stores, the last of which may be masked. Calls [`write`] for larger sizes.
///
/// # Safety
/// The contract of `routines::write`, and the CPU must have AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn write_one(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len == LINE {
            return copy_unaligned(dst, src);
        }
        if len.wrapping_sub(1) >= LARGEST_UNALIGNED {
            return write(dst, src, len);
        }
        // There is no loop here, because the compiler would unroll it, and because counting would take instructions.
        let mut at = 0;
        if len > 2 * LINE {
            copy_unaligned(dst, src);
            copy_unaligned(dst.add(LINE), src.add(LINE));
            at = 2 * LINE;
        }
        if len - at >= LINE {
            copy_unaligned(dst.add(at), src.add(at));
            at += LINE;
        }
        if at < len {
            write_part(dst.add(at), src.add(at), len - at);
        }
    }
}

/// Copies a line by one store, in assembly, because in unoptimized builds `_mm512_storeu_si512` may store bytes twice.
///
/// # Safety
/// Needs AVX-512 F, 64 readable bytes at `src` and 64 writable ones at `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn copy_unaligned(dst: *mut u8, src: *const u8) {
    // SAFETY: 64 bytes are readable at `src` and writable at `dst`: contract of this function.
    unsafe {
        let line = _mm512_loadu_si512(src.cast());
        asm!("vmovdqu64 [{}], {}", in(reg) dst, in(zmm_reg) line, options(nostack, preserves_flags));
    }
}

/// The size in bytes of the longest write whose stores may straddle cache lines. The CPU splits such a store in two.
const LARGEST_UNALIGNED: usize = 4 * LINE;

/// Writes 1 to 64 bytes by one masked store, which may reach into the next line. If the load or the store would cross a
/// page, which is slow ([`crosses_page`]), calls [`write`] instead.
///
/// # Safety
/// The contract of [`write_one`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn write_part(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the mask lets through `len` bytes.
    unsafe {
        if (change_of_page(src) | change_of_page(dst)) & SMALLEST_PAGE != 0 {
            write_across_pages(dst, src, len);
        } else {
            copy_masked(dst, src, u64::MAX >> (LINE - len));
        }
    }
}

/// Sets the bit [`SMALLEST_PAGE`] of its result if [`crosses_page`] is true. One branch can test two combined results.
#[inline]
fn change_of_page(address: *const u8) -> usize {
    address.addr() ^ address.addr().wrapping_add(LINE - 1)
}

/// Calls [`write`]. This function is not inlined, because few copies cross a page.
///
/// # Safety
/// The contract of [`write`].
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn write_across_pages(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { write(dst, src, len) }
}

/// Copies up to 64 bytes, those whose bits are set in `mask`.
///
/// # Safety
/// Needs AVX-512 F and BW. The copied bytes must be readable at `src` and writable at `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn copy_masked(dst: *mut u8, src: *const u8, mask: u64) {
    // SAFETY: contract of this function; the CPU does not access the other bytes.
    unsafe { _mm512_mask_storeu_epi8(dst.cast(), mask, _mm512_maskz_loadu_epi8(mask, src.cast())) }
}

/// Checks eight copies at a time, in three registers, as [`CheckFn`] says. Leaves the rest, up to seven, to the caller.
///
/// # Safety
/// Needs AVX-512 F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn check(copies: &[Fields], lowest: Fields, highest: Fields) -> Option<(usize, usize)> {
    let eights = copies.as_chunks::<8>().0;
    if eights.is_empty() {
        return Some((0, 0));
    }
    /// For each of the three registers, the mask of the lanes that hold a copy's first field (the offset). The mask of
    /// the lanes that hold a third field is the mask for the register before (for register 0, the one for register 2).
    const OFFSETS: [u8; 3] = [0b0100_1001, 0b1001_0010, 0b0010_0100];
    let registers = |fields: Fields| {
        let [first, second, third] = fields.map(|field| _mm512_set1_epi64(field as i64));
        [0, 1, 2].map(|n| {
            let with_first = _mm512_mask_mov_epi64(second, OFFSETS[n], first);
            _mm512_mask_mov_epi64(with_first, OFFSETS[(n + 2) % 3], third)
        })
    };
    let (lowest, highest) = (registers(lowest), registers(highest));
    // A lane of `outside` becomes negative if a field in that lane is out of its range.
    let mut outside = _mm512_setzero_si512();
    let mut bits = [outside; 3];
    for eight in eights {
        for n in 0..3 {
            // SAFETY: the fields of eight copies fill three registers, and `n` is below 3.
            let fields = unsafe { _mm512_loadu_si512(eight.as_ptr().cast::<__m512i>().add(n)) };
            outside = _mm512_or_si512(outside, _mm512_sub_epi64(fields, lowest[n]));
            outside = _mm512_or_si512(outside, _mm512_sub_epi64(highest[n], fields));
            bits[n] = _mm512_or_si512(bits[n], fields);
        }
    }
    if _mm512_cmplt_epi64_mask(outside, _mm512_setzero_si512()) != 0 {
        return None;
    }
    let [first, second, third] = [0, 1, 2].map(|n| _mm512_maskz_mov_epi64(OFFSETS[n], bits[n]));
    let offsets = _mm512_reduce_or_epi64(_mm512_or_si512(_mm512_or_si512(first, second), third));
    Some((8 * eights.len(), offsets as usize))
}

/// The number of lines that are loaded before the first is stored. A core has at most 16 loads of lines in flight.
const BATCH: usize = 16;

/// Loads each line that the range touches once, and stores the bytes of the range straight from the register.
///
/// Uncached loads share buffers of the CPU with stores that miss the cache. So a store to a cache line that the
/// core does not have in its caches delays the loads after it by a whole round trip. From the second batch on, the
/// cache lines to store to are fetched before the next loads are issued. With an H200 that saves 8 to 27% of the time
/// of reads of 4 and 16 MiB. A read of one batch does not need this: its stores may complete after the call.
///
/// # Safety
/// The contract of `routines::read`, and the CPU must have AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    let head = (src.addr().wrapping_neg() % LINE).min(len);
    let tail = (len - head) % LINE;
    let end = len - tail;
    let batches_end = end - (end - head) % (BATCH * LINE);

    // SAFETY: head, batches, lines and tail make up the range of this function's contract.
    unsafe {
        // The calls to functions named `*_by_stack` are tail calls, so this function needs no stack frame.
        if head > 0 && crosses_page(dst.wrapping_sub(src.addr() % LINE)) {
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
        if tail > 0 && crosses_page(dst.add(end)) {
            return copy_part_by_stack(dst.add(end), src.add(end), tail);
        }
        copy_part(dst.add(end), src.add(end), tail);
    }
}

/// # Safety
/// Needs AVX-512 F and BW, a batch of readable, aligned lines at `src` and the same number of writable bytes at `dst`.
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

/// Fetches the cache lines at `dst` to which a batch of lines is about to be stored. The address may be invalid.
#[inline]
fn fetch_for_stores(dst: *const u8) {
    for n in 0..BATCH {
        prefetch::for_store(dst.wrapping_add(n * LINE));
    }
}

/// Copies the `len` bytes at `src`, which are all in one cache line.
///
/// # Safety
/// The contract of `routines::read`, and the CPU must have AVX-512 F and BW.
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

/// Stores to `dst` the `len` bytes (1 to 64) that were loaded from `src` as a part of the cache line `line`.
///
/// # Safety
/// Needs AVX-512 F and BW, and `len` writable bytes at `dst`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store_part(dst: *mut u8, src: *const u8, len: usize, line: __m512i) {
    let offset = src.addr() % LINE;
    let mask = u64::MAX >> (LINE - len) << offset;
    // SAFETY: the mask selects the `len` bytes from `dst` on. The other bytes are not stored, so they cannot fault.
    unsafe { _mm512_mask_storeu_epi8(dst.wrapping_sub(offset).cast(), mask, line) }
}

const SMALLEST_PAGE: usize = 4096;

/// Returns whether a masked access of 64 bytes at `address` would cross a page. If one of the two pages is not
/// accessible, or was never accessed, microcode suppresses the fault of the bytes outside the mask. That takes longer
/// than the rest of a small copy. Host buffers often start or end at the edge of a page.
#[inline]
fn crosses_page(address: *const u8) -> bool {
    address.addr() % SMALLEST_PAGE > SMALLEST_PAGE - LINE
}

/// Does what [`read`] does, but copies the first `head` bytes (at most a line) through the stack, without a mask.
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

/// Does what [`copy_part`] does, but through the stack, without a masked store.
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
/// Needs AVX-512 F, a readable, aligned cache line at `src`, and 64 writable bytes at `dst`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { _mm512_storeu_si512(dst.cast(), load_line(src)) }
}

/// # Safety
/// Needs AVX-512 F, and a readable, aligned cache line at `src`.
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
