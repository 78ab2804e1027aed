//! What the kernel reports about the caller and its descriptors.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use gdremu_core::driver::Caller;

use crate::next;

/// Identifies the file behind a descriptor: st_dev and st_ino.
pub(crate) type Identity = (u64, u64);

/// The calling process and thread.
pub(crate) fn caller() -> Caller {
    // SAFETY: these calls only read the ids of the calling thread.
    unsafe {
        Caller {
            pid: libc::getpid(),
            tid: libc::gettid(),
        }
    }
}

/// Bytes per page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: `sysconf` only reads a constant.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has a page size")
}

/// The status of the file behind a descriptor.
pub(crate) fn file_status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable, and `fstat` has filled it if it returned 0.
    unsafe { (next::fstat()(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}
