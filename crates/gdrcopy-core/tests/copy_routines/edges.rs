//! Checks copies at the edges of a page between inaccessible pages, so that a stray access faults.

use std::ffi::{c_int, c_long, c_void};
use std::{ptr, slice};

use crate::bytes::MAX_LEN;
use crate::routines::Routine;
use crate::subject::{read, write};

// Constants and functions of libc are declared here, because `tests/cross` includes this file and cannot use crates.
// The values are the same on every Linux arch that is tested.
const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, o: c_long) -> *mut c_void;
    fn mprotect(at: *mut c_void, len: usize, prot: c_int) -> c_int;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
}

/// A multiple of every arch's page size.
pub(crate) const PAGE: usize = 64 << 10;

/// A page between two inaccessible ones.
pub(crate) struct LonePage {
    map: *mut c_void,
}

impl LonePage {
    pub(crate) fn new() -> Self {
        // SAFETY: the mapping is new, so no other code uses its middle page, which becomes accessible.
        let map = unsafe {
            let map = mmap(ptr::null_mut(), 3 * PAGE, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0);
            assert_ne!(map.addr(), usize::MAX, "mmap");
            assert_eq!(mprotect(map.byte_add(PAGE), PAGE, PROT_READ_WRITE), 0, "mprotect");
            map
        };
        LonePage { map }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        // SAFETY: the mapping holds three pages.
        unsafe { self.map.cast::<u8>().add(PAGE) }
    }

    /// Returns the places of two ranges of `len` bytes in the page: one begins `gap` bytes after the page's start, and
    /// the other ends `gap` bytes before the page's end.
    pub(crate) fn ends(&self, len: usize, gap: usize) -> [*mut u8; 2] {
        let start = self.start();
        // SAFETY: the lengths and gaps here are far below a page.
        unsafe { [start.add(gap), start.add(PAGE - gap - len)] }
    }
}

impl Drop for LonePage {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(self.map, 3 * PAGE) };
    }
}

/// Copies all sizes to and from both edges of a page, and to and from addresses 1 and 31 bytes inside of the edges.
pub(crate) fn check(routine: &Routine) {
    let device = LonePage::new();
    let host = LonePage::new();
    let name = routine.name();
    for len in 0..=MAX_LEN {
        for gap in [0, 1, 31] {
            for (end, at) in device.ends(len, gap).into_iter().enumerate() {
                let sent: Vec<u8> = (0..len).map(|n| (n * 5 + end + 1) as u8).collect();
                for buffer in host.ends(len, 0) {
                    // SAFETY: the pages contain the `len` bytes at `at` and `buffer`, and the cache lines around them.
                    unsafe {
                        buffer.copy_from_nonoverlapping(sent.as_ptr(), len);
                        write(routine, at, buffer, len);
                        assert!(slice::from_raw_parts(at, len) == sent, "{name}: write of {len} bytes");
                        buffer.write_bytes(0, len);
                        read(routine, buffer, at, len);
                        assert!(slice::from_raw_parts(buffer, len) == sent, "{name}: read of {len} bytes");
                    }
                }
            }
        }
    }
}
