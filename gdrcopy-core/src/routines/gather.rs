//! Gathers: many small ranges, read with the most loads in flight that a core keeps.
//!
//! The CPU executes some 500 instructions past the oldest load that it waits for (half of that where another thread
//! shares the core). So only loads with little between them overlap. A gather therefore takes three passes. It lists
//! the blocks to load, loads them to a buffer on the stack, and copies the wanted bytes to their destinations.

use core::mem::MaybeUninit;
use core::{ptr, slice};

use super::arch::fence;
use super::routine::{Item, LINE, Routine};

/// Blocks that are listed at most before they are loaded.
const LISTED: usize = 512;
/// Bytes of the buffer, for 256 lines.
const BUFFER: usize = 16 << 10;
/// The routine's `read` reads items of more bytes, counted in whole blocks, because their own loads overlap.
const LARGEST: usize = 2 << 10;

// Even the smallest blocks of the largest item fit.
const _: () = assert!(LARGEST <= BUFFER && LARGEST <= LISTED * size_of::<u64>());

/// Room for the blocks. Not initialized, because clearing it would take longer than the instructions of a small gather.
#[repr(align(64))]
struct Buffer(MaybeUninit<[u8; BUFFER]>);

/// Copies the items with numbers below `count`, which `item` returns, from a mapping to host memory, between the fences of
/// one read. The loads are the routine's even for words, because they overlap, while plain loads of write-combining
/// memory do not. `item` is called twice for each number.
///
/// # Safety
/// Each item's `dst` and `src` must be as for [`read`](super::read), and both calls of `item` must return the same
/// `src` and `len`. The CPU must run the routine.
#[inline(always)]
pub unsafe fn gather(routine: &Routine, count: usize, mut item: impl FnMut(usize) -> Item) {
    let Some(blocks) = &routine.blocks else {
        fence::before_read();
        for Item { dst, src, len } in (0..count).map(item) {
            // SAFETY: contract of this function.
            unsafe { (routine.read)(dst, src, len) }
        }
        fence::after_read();
        return;
    };
    let size = blocks.size;
    let mut list = [const { MaybeUninit::<*const u8>::uninit() }; LISTED];
    let list = list.as_mut_ptr().cast::<*const u8>();
    let mut buffer = Buffer(MaybeUninit::uninit());
    let buffer = buffer.0.as_mut_ptr().cast::<u8>();
    let room = BUFFER.min(LISTED * size);

    let mut next = 0;
    while next < count {
        let first = next;
        let (mut listed, mut left) = (0, room);
        while next < count {
            let Span { start, bytes, .. } = Span::of(&item(next), size);
            if bytes <= LARGEST {
                if bytes > left {
                    break;
                }
                if bytes > 0 {
                    // A store to a line that is in no near cache would delay the loads after it. Volatile, because it is
                    // overwritten.
                    // SAFETY: where the item's blocks will be.
                    unsafe { buffer.add(room - left).write_volatile(0) };
                }
                left -= bytes;
                let mut at = 0;
                while at < bytes {
                    // SAFETY: the blocks listed fit into `room`, and so their number into the list.
                    unsafe { list.add(listed).write(start.wrapping_add(at)) };
                    (listed, at) = (listed + 1, at + size);
                }
            }
            next += 1;
        }
        // The CPU executes nothing past the fence until the loads before it have returned, so it comes after the list.
        if first == 0 {
            fence::before_read();
        }
        // SAFETY: the first `listed` addresses were written; each block holds bytes of an item, and the buffer has room
        // for all of them.
        unsafe { (blocks.load)(buffer, slice::from_raw_parts(list, listed)) };
        let mut at = 0;
        for n in first..next {
            let item = item(n);
            let Span { offset, bytes, .. } = Span::of(&item, size);
            // SAFETY: contract of this function; the item's blocks were loaded one after the other, from `at` on.
            unsafe {
                if bytes <= LARGEST {
                    copy_out(item.dst, buffer.add(at + offset), item.len);
                    at += bytes;
                } else {
                    (routine.read)(item.dst, item.src, item.len);
                }
            }
        }
    }
    fence::after_read();
}

/// Copies naturally aligned words of 1, 2, 4 or 8 bytes from a mapping to `values`, between the fences of one read. As
/// [`gather`], which takes more instructions.
///
/// # Safety
/// The words must be mapped, and `values` writable for their number. The CPU must run the routine.
#[inline(always)]
pub unsafe fn gather_words<T: Copy>(routine: &Routine, words: &[*const T], values: *mut T) {
    let Some(blocks) = &routine.blocks else {
        let item = |n: usize| Item { dst: values.wrapping_add(n).cast(), src: words[n].cast(), len: size_of::<T>() };
        // SAFETY: contract of this function.
        return unsafe { gather(routine, words.len(), item) };
    };
    let size = blocks.size;
    let mut buffer = Buffer(MaybeUninit::uninit());
    let buffer = buffer.0.as_mut_ptr().cast::<u8>();
    let first = words.len().min(BUFFER / size);
    for n in 0..first {
        // A store to a line that is in no near cache would delay the loads after it. Volatile, because it is overwritten.
        // SAFETY: inside the buffer.
        unsafe { buffer.add(n * size).write_volatile(0) };
    }
    fence::before_read();
    let mut next = 0;
    for words in words.chunks(BUFFER / size) {
        // SAFETY: each block holds a word, and the buffer has room for all of them. Pointers have one layout.
        unsafe {
            let addresses = slice::from_raw_parts(words.as_ptr().cast(), words.len());
            (blocks.load)(buffer, addresses);
        }
        for (n, word) in words.iter().enumerate() {
            let offset = word.addr() & (size - 1);
            // SAFETY: the word's block was loaded to this place; the word is aligned in it as it is mapped.
            unsafe {
                let value = buffer.add(n * size + offset).cast::<T>().read();
                values.add(next).write(value);
            }
            next += 1;
        }
    }
    fence::after_read();
}

/// The blocks around an item.
struct Span {
    /// Address of the first one.
    start: *const u8,
    /// The offset of the item in it.
    offset: usize,
    /// The bytes of all blocks together.
    bytes: usize,
}

impl Span {
    #[inline(always)]
    fn of(item: &Item, size: usize) -> Span {
        let offset = item.src.addr() & (size - 1);
        let bytes = match item.len {
            0 => 0,
            len => (offset + len + size - 1) & !(size - 1),
        };
        let start = item.src.wrapping_sub(offset);
        Span { start, offset, bytes }
    }
}

/// Copies bytes of the buffer to their destination, whole lines and small items without a call.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes, and the two must not overlap.
#[inline(always)]
unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        if len == LINE {
            ptr::copy_nonoverlapping(src, dst, LINE);
        } else if !(4..=32).contains(&len) {
            ptr::copy_nonoverlapping(src, dst, len);
        } else if len >= 16 {
            copy_ends::<16>(dst, src, len);
        } else if len >= 8 {
            copy_ends::<8>(dst, src, len);
        } else {
            copy_ends::<4>(dst, src, len);
        }
    }
}

/// Copies the first `N` and the last `N` bytes, which are all where `len` is `N` to twice that.
///
/// # Safety
/// The contract of [`copy_out`], and `len` must be at least `N`.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe {
        let last = src.add(len - N).cast::<[u8; N]>().read();
        dst.cast::<[u8; N]>().write(src.cast::<[u8; N]>().read());
        dst.add(len - N).cast::<[u8; N]>().write(last);
    }
}
