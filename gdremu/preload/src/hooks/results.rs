//! Results as libc returns them.

use std::ffi::c_int;

use gdremu_core::errno::Errno;

/// Sets errno and returns -1.
pub(super) fn fail(errno: Errno) -> c_int {
    // SAFETY: errno of this thread is always there.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

pub(super) fn to_libc(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

pub(super) fn from_libc(result: c_int) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::last()) }
}
