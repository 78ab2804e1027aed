//! One copy: the kernel that suits the mapping's type, by several threads where the user wants it
//! (`parallel`), and a full fence behind it while mappings of several types are live.
//!
//! Accesses through mappings of different types pass each other in the CPU, so that a program that
//! writes through one and reads the same GPU memory through another would read old data. Almost every
//! process has one type alone: copies read one flag that changes only when that changes.

mod parallel;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::copy;
use crate::process::{Owner, PerProcess};
use crate::sync::Mutex;
use crate::types::MappingType;

use parallel::Job;
pub(crate) use parallel::{end_threads, set_threads};

/// The number of live mappings of each type.
type Counts = [usize; 3];

static LIVE: PerProcess<Mutex<Counts>> = PerProcess::new();

/// Whether mappings of two types are live. Stored while `LIVE` is locked.
static MIXED: Flag = Flag(AtomicBool::new(false));

#[repr(align(128))]
struct Flag(AtomicBool);

/// Counts a mapping as live as long as it exists.
#[derive(Debug)]
pub(crate) struct Live {
    kind: MappingType,
    owner: Owner,
}

impl Live {
    pub(crate) fn new(kind: MappingType) -> Live {
        count(kind, |live| *live += 1);
        Live {
            kind,
            owner: Owner::current(),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A forked child has counted none of the mappings that it has inherited.
        if self.owner.is_current() {
            count(self.kind, |live| *live -= 1);
        }
    }
}

fn count(kind: MappingType, change: impl FnOnce(&mut usize)) {
    let mut counts = LIVE.get(|_| Mutex::default()).lock();
    change(&mut counts[kind as usize - 1]);
    let types = counts.iter().filter(|&&live| live != 0).count();
    MIXED.0.store(types > 1, Ordering::SeqCst);
}

/// Frees the counts when the library is unloaded.
///
/// # Safety
/// No mapping is live if `may` returns true, and no other thread makes one.
pub(crate) unsafe fn unload(may: impl FnOnce() -> bool) {
    // SAFETY: references to the counts live as long as a call that maps or unmaps.
    unsafe { LIVE.free(|_| may()) }
}

/// Copies `len` bytes to a mapping; they are on their way to the GPU when it returns.
///
/// # Safety
/// `source` is readable and `target` writable for `len` bytes; `target` lies in a mapping of type `kind`.
#[inline(always)]
pub(crate) unsafe fn to_mapping(kind: MappingType, target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if copy::write_word(target, source, len) {
            fence_if_mixed();
        } else if is_plain(kind, len) {
            copy::write_wc(target, source, len);
            fence_if_mixed();
        } else {
            write_otherwise(kind, target, source, len);
        }
    }
}

/// Copies `len` bytes from a mapping; they are no older than the call, and no older than what earlier
/// calls of this thread returned.
///
/// # Safety
/// `source` is readable and `target` writable for `len` bytes; `source` lies in a mapping of type `kind`.
#[inline(always)]
pub(crate) unsafe fn from_mapping(
    kind: MappingType,
    target: *mut u8,
    source: *const u8,
    len: usize,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        if copy::read_word(target, source, len) {
            fence_if_mixed();
        } else if is_plain(kind, len) {
            copy::read_wc(target, source, len);
            fence_if_mixed();
        } else {
            read_otherwise(kind, target, source, len);
        }
    }
}

/// Whether a copy is as almost all are: through a write-combining mapping, and of one thread.
///
/// These are inlined into the C functions, which then store little but return addresses. The CPU runs on
/// behind a store fence, but its later stores wait in line behind it, those to the stack as well: the more
/// of them, the sooner a row of small writes stands still. Of 16 writes of 16 bytes in a row, each took 10 ns
/// instead of 27 with an H200.
#[inline(always)]
fn is_plain(kind: MappingType, len: usize) -> bool {
    len < parallel::WORTHWHILE && kind == MappingType::WriteCombining
}

/// # Safety
/// As for [`to_mapping`].
#[inline(never)]
unsafe fn write_otherwise(kind: MappingType, target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if len < parallel::WORTHWHILE {
            write_alone(kind, target, source, len);
        } else {
            let device = target.addr();
            let copy = write_alone;
            Job {
                copy,
                kind,
                target,
                source,
                len,
                device,
                chunk_size: parallel::WRITTEN_AT_A_TIME,
            }
            .run();
        }
    }
    fence_if_mixed();
}

/// Copies by the calling thread.
///
/// # Safety
/// As for [`to_mapping`].
#[inline(always)]
unsafe fn write_alone(kind: MappingType, target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match kind {
            MappingType::WriteCombining => copy::write_wc(target, source, len),
            MappingType::Device => copy::write_device(target, source, len),
            MappingType::Caching => copy::write_cached(target, source, len),
        }
    }
}

/// # Safety
/// As for [`from_mapping`].
#[inline(never)]
unsafe fn read_otherwise(kind: MappingType, target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        if len < parallel::WORTHWHILE {
            read_alone(kind, target, source, len);
        } else {
            let device = source.addr();
            let copy = read_alone;
            Job {
                copy,
                kind,
                target,
                source,
                len,
                device,
                chunk_size: parallel::READ_AT_A_TIME,
            }
            .run();
        }
    }
    fence_if_mixed();
}

/// Copies by the calling thread.
///
/// # Safety
/// As for [`from_mapping`].
#[inline(always)]
unsafe fn read_alone(kind: MappingType, target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match kind {
            MappingType::WriteCombining => copy::read_wc(target, source, len),
            MappingType::Device => copy::read_device(target, source, len),
            MappingType::Caching => copy::read_cached(target, source, len),
        }
    }
}

#[inline(always)]
fn fence_if_mixed() {
    if MIXED.0.load(Ordering::Relaxed) {
        copy::full_fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_mixed_while_two_types_are_live() {
        let is_mixed = || MIXED.0.load(Ordering::SeqCst);
        let threads: Vec<_> = [MappingType::WriteCombining, MappingType::Caching]
            .into_iter()
            .cycle()
            .take(8)
            .map(|kind| std::thread::spawn(move || (0..2000).for_each(|_| drop(Live::new(kind)))))
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(!is_mixed());
        let one = Live::new(MappingType::Device);
        let two = Live::new(MappingType::Device);
        assert!(!is_mixed());
        let other = Live::new(MappingType::Caching);
        drop(one);
        assert!(is_mixed());
        drop(two);
        assert!(!is_mixed());
        drop(other);
    }
}
