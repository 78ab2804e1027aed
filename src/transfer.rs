//! One copy: the kernel that suits the mapping's type, by several threads where the user wants it
//! (`parallel`), and a full fence behind it while mappings of several types are live.
//!
//! Accesses through mappings of different types pass each other in the CPU, so that a program that
//! writes through one and reads the same GPU memory through another would read old data. Almost every
//! process has one type alone: copies read one flag that changes only when that changes.

mod parallel;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::copy;
use crate::types::MappingType;

use parallel::Job;

/// Live mappings, a 21-bit field a mapping type.
static LIVE: AtomicU64 = AtomicU64::new(0);

/// Whether two types are live. Apart from `LIVE`, so that copies do not share its cache line.
static MIXED: Flag = Flag(AtomicBool::new(false));

#[repr(align(128))]
struct Flag(AtomicBool);

const FIELD_BITS: u32 = 21;

/// One mapping of this type, as `LIVE` counts it. `None` is no type of a live mapping.
fn unit(kind: MappingType) -> u64 {
    match kind {
        MappingType::None => 0,
        kind => 1 << ((kind as u32 - 1) * FIELD_BITS),
    }
}

fn is_mixed(live: u64) -> bool {
    let count = |field| (live >> (field * FIELD_BITS)) & ((1 << FIELD_BITS) - 1);
    (0..3).filter(|&field| count(field) != 0).count() > 1
}

/// Counts a mapping as live as long as it exists.
#[derive(Debug)]
pub(crate) struct Live(MappingType);

impl Live {
    pub(crate) fn new(kind: MappingType) -> Live {
        LIVE.fetch_add(unit(kind), Ordering::SeqCst);
        publish();
        Live(kind)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.fetch_sub(unit(self.0), Ordering::SeqCst);
        publish();
    }
}

/// Brings the flag up to date. Whoever stores last looks again, so that the flag ends right whatever
/// the order in which threads come here.
fn publish() {
    loop {
        let mixed = is_mixed(LIVE.load(Ordering::SeqCst));
        if MIXED.0.load(Ordering::SeqCst) != mixed {
            MIXED.0.store(mixed, Ordering::SeqCst);
        }
        if is_mixed(LIVE.load(Ordering::SeqCst)) == mixed {
            return;
        }
    }
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
            MappingType::Caching | MappingType::None => copy::write_cached(target, source, len),
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
            MappingType::Caching | MappingType::None => copy::read_cached(target, source, len),
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
    fn one_type_is_not_mixed_two_are() {
        use MappingType::{Caching, Device, WriteCombining};
        let wc = unit(WriteCombining);
        assert!(!is_mixed(0));
        assert!(!is_mixed(2 * wc));
        assert!(!is_mixed(0x1f_ffff * wc));
        assert!(is_mixed(wc + unit(Caching)));
        assert!(is_mixed(unit(Device) + unit(Caching)));
    }

    #[test]
    fn the_flag_follows_whatever_the_order() {
        let threads: Vec<_> = [MappingType::WriteCombining, MappingType::Caching]
            .into_iter()
            .cycle()
            .take(8)
            .map(|kind| std::thread::spawn(move || (0..2000).for_each(|_| drop(Live::new(kind)))))
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let kept = [
            Live::new(MappingType::WriteCombining),
            Live::new(MappingType::Caching),
        ];
        assert!(MIXED.0.load(Ordering::SeqCst));
        drop(kept);
        assert_eq!(
            MIXED.0.load(Ordering::SeqCst),
            is_mixed(LIVE.load(Ordering::SeqCst))
        );
    }
}
