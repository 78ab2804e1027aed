//! The libc functions that programs reach a device by, each in all its spellings.
//!
//! A hook first finds out, at the cost of a look at memory, whether a call may concern the emulation
//! at all; if not, it goes straight to the next definition.

pub(crate) mod exists;
pub(crate) mod files;
pub(crate) mod io;
pub(crate) mod memory;
mod paths;
pub(crate) mod reads;
mod stand_ins;

use std::ffi::c_int;

use gdremu_core::errno::Errno;

/// Sets errno and returns -1.
fn fail(errno: Errno) -> c_int {
    // SAFETY: errno of this thread is always there.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

/// Converts to a libc return value.
fn to_libc(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

/// Converts from a libc return value.
fn from_libc(result: c_int) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::last()) }
}
