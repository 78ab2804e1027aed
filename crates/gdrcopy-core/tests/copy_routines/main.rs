//! Every copy routine that this CPU runs, held against a byte-wise copy and against the rules for
//! accesses to device memory.
//!
//! Builds with debug assertions thin the alignments out, unless `GDRCOPY_TEST_ALL` is set.

use gdrcopy_core::routines;

mod bytes;
mod edges;
#[cfg(target_arch = "x86_64")]
mod fences;
mod gather;
#[cfg(target_arch = "x86_64")]
mod masked;
#[cfg(target_arch = "x86_64")]
mod steps;
mod subject;
#[cfg(target_arch = "x86_64")]
mod trace;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use routines::Routine;
use subject::{read, write};

#[test]
fn writes_match_a_bytewise_copy() {
    subject::routines().for_each(bytes::check_writes);
}

#[test]
fn reads_match_a_bytewise_copy() {
    subject::routines().for_each(bytes::check_reads);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no mprotect")]
fn copies_stay_inside_their_pages() {
    subject::routines().for_each(edges::check);
}

#[test]
fn gathers_and_batches_match_a_bytewise_copy() {
    subject::routines().for_each(gather::check);
}

#[test]
fn many_copies_with_a_wrong_field_are_refused() {
    subject::routines().for_each(gather::check_fields);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no mprotect")]
fn gathers_stay_inside_their_pages() {
    routines::supported().for_each(gather::check_edges);
}

/// A copy of one aligned word is one access, so no reader sees a word that is half old, half new.
#[test]
#[cfg_attr(miri, ignore = "a data race for Rust, settled by the single access")]
fn aligned_words_never_tear() {
    for routine in subject::routines() {
        for len in [2, 4, 8] {
            write_untorn(routine, len);
            read_untorn(routine, len);
        }
    }
}

const ROUNDS: usize = 20_000;

/// The `len` bytes of `word` at both ends of the values that a word takes in these tests.
fn is_whole(word: u64, len: usize) -> bool {
    let ones = u64::MAX >> (64 - 8 * len);
    [0, ones].contains(&(word & ones))
}

fn write_untorn(routine: &Routine, len: usize) {
    let device = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let value = if round % 2 == 0 { u64::MAX } else { 0 };
                // SAFETY: both sides hold 8 bytes, and the other thread only loads.
                unsafe { write(routine, device.as_ptr().cast(), (&raw const value).cast(), len) };
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let word = device.load(Ordering::Relaxed);
            assert!(is_whole(word, len), "{}: a torn write of {len} bytes", routine.name());
        }
    });
}

fn read_untorn(routine: &Routine, len: usize) {
    let device = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                device.store(u64::MAX, Ordering::Relaxed);
                device.store(0, Ordering::Relaxed);
            }
        });
        let mut is_torn = false;
        for _ in 0..ROUNDS {
            let mut word = 0;
            // SAFETY: both sides hold 8 bytes, the only ones used in their line.
            unsafe { read(routine, (&raw mut word).cast(), device.as_ptr().cast(), len) };
            is_torn |= !is_whole(word, len);
        }
        done.store(true, Ordering::Relaxed);
        assert!(!is_torn, "{}: a torn read of {len} bytes", routine.name());
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn every_access_is_natural_once_and_fenced() {
    trace::check(&bytes::alignments());
    trace::check_gathers();
    // In one test, because signal handlers are the process's.
    fences::check();
    masked::check();
}

#[test]
fn copy_routines_are_found_by_name_and_the_best_one_otherwise() {
    let best = routines::supported().next().expect("a routine").name();
    for routine in routines::supported() {
        let name = routine.name();
        assert_eq!(routines::find(Some(name.as_ref())).name(), name);
    }
    assert_eq!(routines::find(Some("abacus".as_ref())).name(), best);
    assert_eq!(routines::find(None).name(), best);
}
