//! Compares every copy routine that this CPU can run with a byte-wise copy, and checks the alignment, the number and
//! the fences of its accesses. Builds with debug assertions check fewer alignments, unless `GDRCOPY_TEST_ALL` is set.

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

#[test]
fn writes_match_a_bytewise_copy() {
    for routine in subject::routines() {
        bytes::check(routine, subject::write);
        bytes::check(routine, routines::write_unfenced);
    }
}

#[test]
fn reads_match_a_bytewise_copy() {
    subject::routines().for_each(|routine| bytes::check(routine, subject::read));
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
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "Miri has no signals")]
fn every_access_is_natural_once_and_fenced() {
    trace::check();
    // These checks are in one test, because each sets signal handlers of the process, and tests run at the same time.
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
