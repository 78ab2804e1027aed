//! Makes batches of writes, and gathers, which are reads with overlapping loads.
//!
//! Loads overlap if the CPU begins the next ones while it still waits for the first. It executes some 500 instructions
//! past the oldest load that it waits for (half of that if another thread shares the core), up to the next fence. And
//! it must have predicted the branches between the loads. On an H200's host (Intel model 207, 2026-11-28), gathers of
//! 16 items of two lines took 200 ns per item, but 620 ns with one unpredictable branch per item, whatever the branch
//! did. The reason may be that loads after a wrong prediction are not canceled, and that a load of a cache line takes a
//! round trip of its own if another load is fetching the cache line. Masked and unaligned stores, stores at the same
//! offset in a page, calls, and 30 more instructions between the loads made no difference.
//!
//! A batch of a few writes ends before its stores have left the CPU, so the execution of its instructions is all that
//! takes time. Writes of one size therefore have loops of their own, with few instructions and wide stores.
//!
//! All copies are checked before the first one is made. If the routine's loads do not overlap, a gather reads one item
//! after the other. Else, if all items are aligned and have the same size (4 or 8 bytes, a line, or with some routines
//! 16 bytes), the same few instructions load each item. All other gathers take three passes, which list the aligned
//! blocks around the items, load them without a branch that depends on an item, and copy the wanted bytes out.

use core::mem::MaybeUninit;
use core::ptr;

use super::arch::{self, fence};
use super::instructions::{Instructions, Work};
use super::loads::{StackLine, copy_out};
use super::portable::Portable;
use super::routine::{BlockFn, CopyFn, FIRST, Item, LINE, MEMCPY, Routine, memcpy};
use super::select::best;
use super::shape::Shaped;
use super::stores;

/// A gather fetches the cache line of an item's destination this many items before it stores there. A store to a cache
/// line that the core does not have in its caches delays the loads after the store by a round trip.
const AHEAD: usize = 64;

/// Loops over the numbers below `count`. The loop is unrolled, because a plain loop takes more instructions. This is a
/// macro and not a function with a closure, so that the body is inlined.
macro_rules! unrolled {
    ($count:expr, $n:ident => $body:block) => {
        let fours = $count & !3;
        for first in (0..fours).step_by(4) {
            for $n in [first, first + 1, first + 2, first + 3] {
                $body
            }
        }
        for $n in fours..$count {
            $body
        }
    };
}

/// Makes the writes `item(0)` to `item(count - 1)` to a mapping. Returns false, and makes none, if `shape` finds an
/// invalid one. Callers call [`before_write`](super::before_write) first and [`after_write`](super::after_write) last.
///
/// # Safety
/// Each item must meet the contract of [`write()`](super::write()), and all must have the size and the alignment that
/// `shape` returns. The CPU must be able to run the routine.
#[inline(always)]
pub unsafe fn write_many_unfenced(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item + Copy,
) -> bool {
    // SAFETY: contract of this function.
    unsafe { run::<Writes>(routine, shape, count, item) }
}

/// Makes the reads `item(0)` to `item(count - 1)` from a mapping, with the fences of a single read. Words, too, are
/// read by the routine's loads, because these overlap, while plain loads of write-combining memory do not. Returns
/// false, and reads nothing, if `shape` checks the copies and finds an invalid one.
///
/// # Safety
/// Each item must meet the contract of [`read`](super::read), and all must have the size and the alignment that `shape`
/// returns. `item` must return the same item for a number each time. The CPU must be able to run the routine.
#[inline(always)]
pub unsafe fn gather(routine: &Routine, shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item + Copy) -> bool {
    // SAFETY: contract of this function.
    unsafe { run::<Gather>(routine, shape, count, item) }
}

/// Runs the copy loop `W` by the instructions of `routine`.
///
/// # Safety
/// The contract of [`Work::run`], and the CPU must be able to run the routine.
#[inline(always)]
unsafe fn run<W: Work>(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item + Copy,
) -> bool {
    // SAFETY: contract of this function.
    unsafe {
        match arch::run::<W>(routine, shape, count, item) {
            Some(done) => done,
            None => run_other::<W>(routine, shape, count, item),
        }
    }
}

/// Does what [`run`] does, for a routine that is not specific to an architecture.
///
/// # Safety
/// The contract of [`run`].
#[inline(never)]
unsafe fn run_other<W: Work>(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item + Copy,
) -> bool {
    // SAFETY: contract of this function. Cached memory allows any access. All other memory allows the accesses of
    // `Portable`.
    unsafe {
        match routine.name {
            FIRST => run::<W>(best(), shape, count, item),
            MEMCPY => W::run::<Memcpy>(shape, count, item),
            _ => W::run::<Portable>(shape, count, item),
        }
    }
}

struct Writes;

impl Work for Writes {
    #[inline(always)]
    unsafe fn run<I: Instructions>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool {
        // SAFETY: contract of this function.
        let Some(shape) = (unsafe { shape.shape(count, I::CHECK) }) else {
            return false;
        };
        // SAFETY: contract of this function.
        unsafe {
            if shape.is(LINE) {
                store_each(count, &item, I::STORE_LINE);
            } else if shape.is(8) {
                store_each(count, &item, stores::word::<u64>);
            } else if shape.is(4) {
                store_each(count, &item, stores::word::<u32>);
            } else if shape.len > 0 && (shape.len | shape.addresses) & (LINE - 1) == 0 {
                for n in 0..count {
                    let Item { dst, src, .. } = item(n);
                    for at in (0..shape.len).step_by(LINE) {
                        (I::STORE_LINE)(dst.add(at), src.add(at));
                    }
                }
            } else if shape.is(16) {
                store_each(count, &item, I::STORE_16);
            } else if shape.is(32) {
                store_each(count, &item, I::STORE_32);
            } else if shape.len > size_of::<u64>() && shape.len <= LINE {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = item(n);
                    (I::WRITE_PART)(dst, src, shape.len);
                });
            } else if shape.len > LINE {
                for n in 0..count {
                    let Item { dst, src, .. } = item(n);
                    (I::WRITE_ONE)(dst, src, shape.len);
                }
            } else {
                for n in 0..count {
                    let Item { dst, src, len } = item(n);
                    stores::word_or(I::WRITE_ONE, dst, src, len);
                }
            }
        }
        true
    }
}

/// Makes writes that all have the size that `store` writes.
///
/// # Safety
/// The contract of [`write_many_unfenced`], and each item must meet the contract of `store`.
#[inline(always)]
unsafe fn store_each(count: usize, item: &impl Fn(usize) -> Item, store: BlockFn) {
    unrolled!(count, n => {
        let Item { dst, src, .. } = item(n);
        // SAFETY: contract of this function.
        unsafe { store(dst, src) }
    });
}

struct Gather;

impl Work for Gather {
    #[inline(always)]
    unsafe fn run<I: Instructions>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool {
        // SAFETY: contract of this function.
        let Some(shape) = (unsafe { shape.shape(count, I::CHECK) }) else {
            return false;
        };
        // SAFETY: contract of this function.
        unsafe {
            if !I::LOADS_OVERLAP {
                fence::before_read();
                for n in 0..count {
                    let Item { dst, src, len } = item(n);
                    (I::READ)(dst, src, len);
                }
            } else if shape.is(LINE) {
                one_by_one::<I>(count, &item, load_line::<I>);
            } else if shape.is(8) {
                one_by_one::<I>(count, &item, load_word::<I, 8>);
            } else if shape.is(4) {
                one_by_one::<I>(count, &item, load_word::<I, 4>);
            } else if I::SMALL == 16 && shape.is(16) {
                one_by_one::<I>(count, &item, I::LOAD_SMALL);
            } else {
                in_passes::<I>(count, &item);
            }
        }
        fence::after_read();
        true
    }
}

/// Copies one item after the other by `copy`, which executes the same few instructions for each.
///
/// # Safety
/// The contract of [`gather`], and each item must meet the contract of `copy`.
#[inline(always)]
unsafe fn one_by_one<I: Instructions>(count: usize, item: &impl Fn(usize) -> Item, copy: BlockFn) {
    unrolled!(count.min(AHEAD), n => {
        (I::FETCH_FOR_STORE)(item(n).dst);
    });
    fence::before_read();
    unrolled!(count, n => {
        let ahead = n + AHEAD;
        if ahead < count {
            (I::FETCH_FOR_STORE)(item(ahead).dst);
        }
        let Item { dst, src, .. } = item(n);
        // SAFETY: contract of this function.
        unsafe { copy(dst, src) }
    });
}

/// The size in bytes of the buffer for the blocks that are loaded in one pass.
const BUFFER: usize = 16384;
/// An item whose blocks have more bytes than this is read by itself, because it has enough loads that overlap.
const LARGEST: usize = 2048;
/// An item's blocks are listed in steps of this many bytes, so all items of at most one step take the same branches.
const LISTED: usize = 2 * LINE;

/// A buffer with a place for each block. The place has the block's address before the load, and its bytes afterwards.
/// The buffer is not initialized, because clearing it would take longer than a small gather.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; BUFFER + LISTED]>);

/// Lists the aligned blocks of device memory around the items, loads all of them, and then copies the wanted bytes out.
///
/// # Safety
/// The contract of [`gather`].
#[inline(always)]
unsafe fn in_passes<I: Instructions>(count: usize, item: &impl Fn(usize) -> Item) {
    let mut buffer = Buffer(MaybeUninit::uninit());
    let buffer = buffer.0.as_mut_ptr().cast::<u8>();
    let mut first = 0;
    loop {
        let mut next = first;
        let mut listed = 0;
        while next < count {
            let item = item(next);
            let Span { start, bytes, .. } = Span::of::<I>(&item);
            if bytes <= LARGEST {
                if bytes > BUFFER - listed {
                    break;
                }
                (I::FETCH_FOR_STORE)(item.dst);
                let mut next = 0;
                loop {
                    for at in (0..LISTED).step_by(I::BLOCK) {
                        let at = next + at;
                        // The stores are volatile, because the compiler would combine plain stores into scatter
                        // instructions, which are slower.
                        // SAFETY: the buffer has room for the item's blocks and for others that the last step lists.
                        unsafe { buffer.add(listed + at).cast::<*const u8>().write_volatile(start.wrapping_add(at)) };
                    }
                    next += LISTED;
                    if next >= bytes {
                        break;
                    }
                }
                listed += bytes;
            }
            next += 1;
        }
        // One fence is enough. It waits for earlier loads. So the list is made before it, while they are under way.
        if first == 0 {
            fence::before_read();
        }
        // SAFETY: the loop above has stored the addresses of blocks in the buffer. Each block has bytes of an item.
        unsafe { load_listed::<I>(buffer, listed / I::BLOCK) };
        let mut at = 0;
        for n in first..next {
            let item = item(n);
            let Span { offset, bytes, .. } = Span::of::<I>(&item);
            // SAFETY: contract of this function; the item's blocks were loaded one after the other, from `at` on.
            unsafe {
                if bytes <= LARGEST {
                    copy_out(item.dst, buffer.add(at + offset), item.len);
                    at += bytes;
                } else {
                    (I::READ)(item.dst, item.src, item.len);
                }
            }
        }
        first = next;
        if first == count {
            break;
        }
    }
}

/// Loads each block into its place in the buffer, which holds the block's address until then. Of every 16 blocks, loads
/// the first of each cache line, then the second, and so on, because successive loads of one line might not overlap.
///
/// # Safety
/// The contract of [`BlockFn`], for `count` blocks.
#[inline(always)]
unsafe fn load_listed<I: Instructions>(buffer: *mut u8, count: usize) {
    const TURN: usize = 16;
    let in_turns = count - count % TURN;
    for turn in (0..in_turns).step_by(TURN) {
        for part in 0..LINE / I::BLOCK {
            for line in 0..TURN * I::BLOCK / LINE {
                // SAFETY: contract of this function; the number of the block is below `count`.
                unsafe { load_place::<I>(buffer, turn + line * (LINE / I::BLOCK) + part) }
            }
        }
    }
    for n in in_turns..count {
        // SAFETY: contract of this function; `n` is below `count`.
        unsafe { load_place::<I>(buffer, n) }
    }
}

/// # Safety
/// The contract of [`load_listed`], for the block of this number.
#[inline(always)]
unsafe fn load_place<I: Instructions>(buffer: *mut u8, n: usize) {
    // SAFETY: contract of this function.
    unsafe {
        let place = buffer.add(n * I::BLOCK);
        (I::LOAD_BLOCK)(place, place.cast::<*const u8>().read());
    }
}

/// The aligned blocks of device memory that contain the bytes of an item.
struct Span {
    /// The address of the first block.
    start: *const u8,
    /// The offset of the item in the first block.
    offset: usize,
    /// The number of bytes in all blocks together.
    bytes: usize,
}

impl Span {
    #[inline(always)]
    fn of<I: Instructions>(item: &Item) -> Span {
        let offset = item.src.addr() & (I::BLOCK - 1);
        let start = item.src.wrapping_sub(offset);
        let bytes = if item.len == 0 { 0 } else { (offset + item.len + I::BLOCK - 1) & !(I::BLOCK - 1) };
        Span { start, offset, bytes }
    }
}

/// # Safety
/// The contract of [`BlockFn`], for an aligned line.
#[inline(always)]
unsafe fn load_line<I: Instructions>(dst: *mut u8, src: *const u8) {
    for at in (0..LINE).step_by(I::BLOCK) {
        // SAFETY: the block lies in the line.
        unsafe { (I::LOAD_BLOCK)(dst.add(at), src.add(at)) }
    }
}

/// # Safety
/// The contract of [`BlockFn`], for an aligned word of `N` bytes.
#[inline(always)]
unsafe fn load_word<I: Instructions, const N: usize>(dst: *mut u8, src: *const u8) {
    let mut line = StackLine::new();
    // SAFETY: contract of this function.
    unsafe {
        line.load_one(I::SMALL, src, I::LOAD_SMALL);
        line.store_word::<N>(dst, src);
    }
}

/// The functions of the routine for cached mappings. They call the C library's memcpy.
struct Memcpy;

impl Instructions for Memcpy {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = copy_line;
    const LOADS_OVERLAP: bool = false;
    const STORE_LINE: BlockFn = copy_line;
    const WRITE: CopyFn = memcpy;
    const READ: CopyFn = memcpy;
}

/// # Safety
/// The contract of `BlockFn`.
#[inline(always)]
unsafe fn copy_line(dst: *mut u8, src: *const u8) {
    // SAFETY: contract of this function.
    unsafe { ptr::copy_nonoverlapping(src, dst, LINE) }
}
