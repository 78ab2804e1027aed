//! The kernel's copies and reports, and results as libc returns them.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use gdremu_core::errno::Errno;

use crate::next;

/// Copies bytes between addresses of this process. Returns false if either is inaccessible.
///
/// # Safety
/// Writable memory at `to` may be overwritten.
pub(crate) unsafe fn copy_memory(from: *const c_void, to: *mut c_void, len: usize) -> bool {
    let target = libc::iovec { iov_base: to, iov_len: len };
    let source = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    // SAFETY: the kernel checks the access to both; overwriting `to` is allowed: contract of this function.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &target, 1, &source, 1, 0) };
    if copied < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        if error != Some(libc::EFAULT) && !from.is_null() && !to.is_null() {
            // A sandbox denies the call, so an inaccessible address faults. SAFETY: as above, and the buffers
            // are distinct, since one is on the stack of the caller.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast(), len) };
            return true;
        }
    }
    usize::try_from(copied) == Ok(len)
}

pub(crate) fn file_status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable, and `fstat` has filled it if it returned 0.
    unsafe { if next::fstat()(fd, status.as_mut_ptr()) == 0 { Some(status.assume_init()) } else { None } }
}

/// Sets errno and returns -1.
pub(crate) fn fail(errno: Errno) -> c_int {
    // SAFETY: errno of this thread is always there.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

pub(crate) fn to_libc(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

pub(crate) fn from_libc(result: c_int) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::last()) }
}
