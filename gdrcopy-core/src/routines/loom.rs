//! In place of a CPU with `--cfg gdrapi_loom`, mapped memory is words of loom, with no order but that of the fences.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};

use ::loom::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// The mapped memory. Loom runs the threads of a model as coroutines of one thread.
    static WORDS: RefCell<Vec<AtomicU32>> = const { RefCell::new(Vec::new()) };
}

/// The address where it is mapped, a multiple of a page.
const START: usize = 1 << 16;
const WORD: usize = size_of::<u32>();

/// Maps zeros, for one execution of a model.
pub fn map(bytes: usize) -> NonNull<u8> {
    let zeros = (0..bytes.div_ceil(WORD)).map(|_| AtomicU32::new(0));
    WORDS.set(zeros.collect());
    NonNull::new(ptr::without_provenance_mut(START)).expect("not at 0")
}

/// The indices of the aligned words that the `T` at this address is in, and the offset of the `T` in them.
fn words_of<T>(at: *const T) -> (Range<usize>, usize) {
    let start = at.addr() - START;
    let end = start + size_of::<T>();
    (start / WORD..end.div_ceil(WORD), start % WORD)
}

/// # Safety
/// `src` must be mapped by [`map`], and a `T` be at most 8 bytes, for which any content is valid.
pub(super) unsafe fn load<T>(src: *const T) -> T {
    let (words, offset) = words_of(src);
    let mut found = [0; 2];
    WORDS.with_borrow(|mapped| {
        for (found, word) in found.iter_mut().zip(&mapped[words]) {
            *found = word.load(Ordering::Relaxed);
        }
    });
    // SAFETY: a `T` is in the words from `offset` on: contract of this function.
    unsafe { ptr::from_ref(&found).byte_add(offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// `dst` must be mapped by [`map`]; a `T` must be 4 or 8 bytes.
pub(super) unsafe fn store<T>(dst: *mut T, value: T) {
    let (words, offset) = words_of(dst);
    assert!(offset == 0 && size_of::<T>().is_multiple_of(WORD), "only whole words are modeled");
    let mut written = [MaybeUninit::<u32>::uninit(); 2];
    // SAFETY: there is room for a `T`: contract of this function.
    unsafe { ptr::from_mut(&mut written).cast::<T>().write_unaligned(value) };
    WORDS.with_borrow(|mapped| {
        for (written, word) in written.iter().zip(&mapped[words]) {
            // SAFETY: one of the words of `value`.
            word.store(unsafe { written.assume_init() }, Ordering::Relaxed);
        }
    });
}

/// The least that a CPU's fences do.
pub(crate) mod fence {
    use ::loom::sync::atomic::{Ordering, fence};

    /// Makes a read fresh, which orders no threads.
    pub fn before_read() {}

    pub fn after_read() {
        fence(Ordering::Acquire);
    }

    /// Holds up no store to write-combining memory, which only `after_write` of the write before does.
    pub fn before_write() {}

    pub fn after_write() {
        fence(Ordering::Release);
    }

    pub(crate) fn full() {
        fence(Ordering::SeqCst);
    }
}
