//! Batches of writes, and gathers, which are reads whose loads overlap.
//!
//! The CPU executes some 500 instructions past the oldest load that it waits for (half of that where another thread
//! shares the core). So only loads with little between them overlap, and callers check all copies before the first
//! one. Copies of one size take a loop of their own, with a few instructions for each.

use core::ptr;

use super::arch::{self, fence};
use super::instructions::{Instructions, Work};
use super::loads::StackLine;
use super::portable::Portable;
use super::routine::{BlockFn, CopyFn, FIRST, Item, LINE, MEMCPY, Routine, memcpy};
use super::select::best;
use super::stores;

/// Destinations of a gather that are fetched ahead. A store whose line is in no near cache delays the loads after it by
/// a round trip.
const AHEAD: usize = 64;

/// The size and the alignment that many copies have in common.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of each; 0 if they differ.
    len: usize,
    /// The bits of all their device addresses.
    addresses: usize,
}

impl Shape {
    /// Nothing.
    pub const MIXED: Shape = Shape { len: 0, addresses: 0 };

    /// The shape of copies of `len` bytes each. The bits of all their device addresses are set in `addresses`.
    #[inline(always)]
    pub fn new(len: usize, addresses: usize) -> Shape {
        Shape { len, addresses }
    }

    /// Returns whether all are blocks of `len` bytes, a power of two, aligned to that on the device side.
    #[inline(always)]
    fn is(self, len: usize) -> bool {
        self.len == len && self.addresses & (len - 1) == 0
    }
}

/// Makes the `count` writes that `item` returns to a mapping. [`before_write`](super::before_write) and
/// [`after_write`](super::after_write) order them.
///
/// # Safety
/// Each item must be as for [`write()`](super::write()), and of this shape. The CPU must run the routine.
#[inline(always)]
pub unsafe fn write_many_unfenced(routine: &Routine, shape: Shape, count: usize, item: impl Fn(usize) -> Item) {
    // SAFETY: contract of this function.
    unsafe { run(routine, Writes { shape, count, item }) }
}

/// Copies the `count` items that `item` returns from a mapping to host memory, between the fences of one read. The loads
/// are the routine's even for words, because they overlap, while plain loads of write-combining memory do not.
///
/// # Safety
/// Each item must be as for [`read`](super::read), and of this shape; `item` must return the same one for a number each
/// time. The CPU must run the routine.
#[inline(always)]
pub unsafe fn gather(routine: &Routine, shape: Shape, count: usize, item: impl Fn(usize) -> Item) {
    // SAFETY: contract of this function.
    unsafe { run(routine, Gather { shape, count, item }) }
}

/// Runs a loop by the instructions of a routine.
///
/// # Safety
/// The CPU must run the routine; the rest is as for [`Work::run`].
#[inline(always)]
unsafe fn run<W: Work>(routine: &Routine, work: W) {
    // SAFETY: contract of this function.
    unsafe {
        if let Err(work) = arch::run(routine, work) {
            run_other(routine, work);
        }
    }
}

/// [`run`] by a routine of no architecture.
///
/// # Safety
/// The contract of [`run`].
#[inline(never)]
unsafe fn run_other<W: Work>(routine: &Routine, work: W) {
    // SAFETY: contract of this function. Cached memory takes any access, all other memory those of `Portable`.
    unsafe {
        match routine.name {
            FIRST => run(best(), work),
            MEMCPY => work.run::<Memcpy>(),
            _ => work.run::<Portable>(),
        }
    }
}

/// A loop over the numbers below `count`, unrolled, because a plain one takes more instructions. The body is no closure, so
/// that it is inlined.
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

struct Writes<F> {
    shape: Shape,
    count: usize,
    item: F,
}

impl<F: Fn(usize) -> Item> Work for Writes<F> {
    #[inline(always)]
    unsafe fn run<I: Instructions>(self) {
        let Writes { shape, count, item } = self;
        // SAFETY: contract of this function.
        unsafe {
            if shape.is(LINE) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = item(n);
                    (I::STORE_LINE)(dst, src);
                });
            } else if shape.is(8) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = item(n);
                    stores::word::<u64>(dst, src);
                });
            } else if shape.is(4) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = item(n);
                    stores::word::<u32>(dst, src);
                });
            } else {
                write_each::<I>(count, item);
            }
        }
    }
}

/// # Safety
/// The contract of `Instructions`, for each item.
#[inline(never)]
unsafe fn write_each<I: Instructions>(count: usize, item: impl Fn(usize) -> Item) {
    for n in 0..count {
        let Item { dst, src, len } = item(n);
        // SAFETY: contract of this function.
        unsafe { stores::word_or(I::WRITE, dst, src, len) }
    }
}

struct Gather<F> {
    shape: Shape,
    count: usize,
    item: F,
}

impl<F: Fn(usize) -> Item> Gather<F> {
    /// The item, after those that follow it have been fetched for.
    #[inline(always)]
    fn next<I: Instructions>(&self, n: usize) -> Item {
        if n + AHEAD < self.count {
            (I::FETCH_FOR_STORE)((self.item)(n + AHEAD).dst);
        }
        (self.item)(n)
    }
}

impl<F: Fn(usize) -> Item> Work for Gather<F> {
    #[inline(always)]
    unsafe fn run<I: Instructions>(self) {
        let Gather { shape, count, .. } = self;
        unrolled!(count.min(AHEAD), n => {
            (I::FETCH_FOR_STORE)((self.item)(n).dst);
        });
        fence::before_read();
        // SAFETY: contract of this function.
        unsafe {
            if shape.is(LINE) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = self.next::<I>(n);
                    load_line::<I>(dst, src);
                });
            } else if shape.is(8) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = self.next::<I>(n);
                    load_word::<I, 8>(dst, src);
                });
            } else if shape.is(4) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = self.next::<I>(n);
                    load_word::<I, 4>(dst, src);
                });
            } else if I::SMALL == 16 && shape.is(16) {
                unrolled!(count, n => {
                    let Item { dst, src, .. } = self.next::<I>(n);
                    (I::LOAD_SMALL)(dst, src);
                });
            } else {
                for n in 0..count {
                    let Item { dst, src, len } = self.next::<I>(n);
                    // Items without bytes are no part of a block.
                    if len.wrapping_sub(1) < I::BLOCK - src.addr() % I::BLOCK {
                        (I::LOAD_PART)(dst, src, len);
                    } else {
                        (I::READ)(dst, src, len);
                    }
                }
            }
        }
        fence::after_read();
    }
}

/// # Safety
/// The contract of `Instructions`, for an aligned line.
#[inline(always)]
unsafe fn load_line<I: Instructions>(dst: *mut u8, src: *const u8) {
    for at in (0..LINE).step_by(I::BLOCK) {
        // SAFETY: a block of the line.
        unsafe { (I::LOAD_BLOCK)(dst.add(at), src.add(at)) }
    }
}

/// # Safety
/// The contract of `Instructions`, for an aligned word of `N` bytes.
#[inline(always)]
unsafe fn load_word<I: Instructions, const N: usize>(dst: *mut u8, src: *const u8) {
    let mut line = StackLine::new();
    // SAFETY: contract of this function.
    unsafe {
        line.load_one(I::SMALL, src, I::LOAD_SMALL);
        line.store_word::<N>(dst, src);
    }
}

/// The C library's memcpy, for cached mappings.
struct Memcpy;

impl Instructions for Memcpy {
    const BLOCK: usize = LINE;
    const LOAD_BLOCK: BlockFn = copy_line;
    const LOAD_PART: CopyFn = memcpy;
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
