//! Checks the fences of the copies that each copy routine makes.

use gdrcopy_core::copy;

use crate::edges::{LonePage, PAGE};
use crate::steps::{Event, assert_read_is_fenced, assert_write_is_fenced, stepped};
use crate::subject::{read, routines, write};

/// Checks that a read has a fence before its loads, a write after its stores, and a flush a full fence after its load.
pub(crate) fn check() {
    let page = LonePage::new();
    let start = page.start();
    let mut host = [0_u8; 256];

    // SAFETY: the page is mapped.
    let flush = stepped("flush", start, PAGE, || unsafe { copy::flush(start) });
    assert!(flush.ends_with(&[Event::Access, Event::FullFence]), "{flush:?}");
    for routine in routines() {
        for len in [1, 3, 4, 8, 16, 63, 64, 200] {
            for at in [64, 65, 68, 100] {
                let case = format!("{}: {len} bytes at {at}", routine.name());
                let events = stepped(&case, start, PAGE, || {
                    // SAFETY: the page contains the range and the cache lines around it, and `host` has `len` bytes.
                    unsafe { read(routine, host.as_mut_ptr(), start.add(at), len) }
                });
                assert_read_is_fenced(&case, &events);

                let events = stepped(&case, start, PAGE, || {
                    // SAFETY: the page contains the range, and `host` has `len` bytes.
                    unsafe { write(routine, start.add(at), host.as_ptr(), len) }
                });
                assert_write_is_fenced(&case, &events);
            }
        }
    }
}
