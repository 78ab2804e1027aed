//! The device cannot be read. For read and pread, `nv_get_pages_refcount` is from its start always the current number. Streams read without
//! them.
#![forbid(unsafe_code)]

use std::ffi::c_int;

use gdremu_core::errno::Errno;
use libc::{off_t, ssize_t};

use super::results::fail;
use crate::descriptors::Descriptor;
use crate::hints::device_fds;
use crate::system::position;
use crate::{proc_files, state};

/// The driver has no read, for any process.
fn is_device(fd: c_int) -> bool {
    let Some(process) = state::enter() else {
        return false;
    };
    matches!(process.descriptors.find(fd), Descriptor::Device(_) | Descriptor::Foreign)
}

/// read(2), or pread(2) at an offset.
pub(super) fn read(fd: c_int, offset: Option<off_t>, next: impl FnOnce() -> ssize_t) -> ssize_t {
    if device_fds::may_be(fd) && is_device(fd) {
        fail(Errno::EINVAL);
        return -1;
    }
    if device_fds::may_be(fd)
        && offset.unwrap_or_else(|| position(fd)) == 0
        && proc_files::is_refcount(fd)
        && let Some(mut process) = state::enter()
    {
        proc_files::put(fd, &proc_files::refcount(process.refcount()));
    }
    next()
}
