//! Hooks of the functions that open, read, close and duplicate files.

use std::ffi::c_int;

use gdremu_core::errno::Errno;
use libc::{AT_FDCWD, FILE, off_t, ssize_t};

use super::exists::is_device;
use super::paths::{Place, find};
use crate::descriptors::Kind;
use crate::hints::device_fds;
use crate::next::Text;
use crate::system::{fail, from_libc, to_libc};
use crate::{refcount, state};

/// Opens /dev/gdrdrv, or the file in /proc that shows the number of pins that hold memory. Returns `None` for other
/// paths, and for gdremu's own calls.
fn open_emulated(named: &Place, flags: c_int) -> Option<c_int> {
    let opened = match named {
        Place::Device => state::enter()?.open(flags),
        Place::Refcount(_) => state::enter()?.open_refcount(flags),
        Place::Emulated(_) | Place::Real => return None,
    };
    Some(to_libc(opened))
}

pub(super) fn open(dirfd: c_int, path: Text, flags: c_int, next: impl FnOnce(Text) -> c_int) -> c_int {
    let named = find(dirfd, path);
    if let Some(fd) = open_emulated(&named, flags) {
        return fd;
    }
    let fd = next(named.path(path));
    // A path through /proc/PID/fd may open a dma-buf of another process. The new descriptor must then keep it alive.
    let path = path.get().unwrap_or_default().to_bytes();
    if fd >= 0
        && path.starts_with(b"/proc/")
        && path.windows(4).any(|part| part == b"/fd/")
        && let Some(process) = state::enter()
    {
        process.descriptors.hold(fd);
    }
    fd
}

pub(super) fn fopen(path: Text, mode: Text, next: impl FnOnce(Text) -> *mut FILE) -> *mut FILE {
    let named = find(AT_FDCWD, path);
    let mode = mode.get().unwrap_or_default();
    let only_reads = mode.to_bytes().starts_with(b"r") && !mode.to_bytes().contains(&b'+');
    match open_emulated(&named, if only_reads { libc::O_RDONLY } else { libc::O_RDWR }) {
        None => next(named.path(path)),
        Some(-1) => std::ptr::null_mut(),
        // SAFETY: the mode is fopen's, and the descriptor was just opened.
        Some(fd) => unsafe { libc::fdopen(fd, mode.as_ptr()) },
    }
}

/// The hook of read(2), and of pread(2), which passes an offset. Devices cannot be read. Before a program reads
/// `nv_get_pages_refcount` from its start, the current number of these pins is written to the file.
pub(super) fn read(fd: c_int, offset: Option<off_t>, next: impl FnOnce() -> ssize_t) -> ssize_t {
    if !device_fds::may_be(fd) {
        return next();
    }
    if is_device(fd) {
        return fail(Errno::EINVAL) as ssize_t;
    }
    // SAFETY: the call only returns the position.
    let position = offset.unwrap_or_else(|| unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) });
    if position == 0
        && refcount::is_one(fd)
        && let Some(mut process) = state::enter()
    {
        refcount::put(fd, process.refcount());
    }
    next()
}

pub(super) fn close(fd: c_int, next: impl FnOnce() -> c_int) -> c_int {
    if !device_fds::may_be(fd) {
        return next();
    }
    let Some(mut process) = state::enter() else {
        return next();
    };
    device_fds::remove(fd);
    match process.descriptors.find(fd) {
        Some((file, Kind::Export(_))) => {
            let result = next();
            process.reap(file);
            result
        }
        Some((file, Kind::Device)) => to_libc(process.close(file, || from_libc(next())).map(|()| 0)),
        _ => next(),
    }
}

fn closing<R>(next: impl FnOnce() -> R) -> R {
    let process = state::enter();
    let result = next();
    if let Some(mut process) = process {
        process.reap_all();
    }
    result
}

pub(super) fn close_range<R>(next: impl FnOnce() -> R) -> R {
    if device_fds::are_there() { closing(next) } else { next() }
}

/// The hook of dup2(2) and dup3(2), which first close the descriptor `new` if it is open.
pub(super) fn dup2(old: c_int, new: c_int, next: impl FnOnce() -> c_int) -> c_int {
    let closes_device = old != new && device_fds::may_be(new);
    duplicated(old, if closes_device { closing(next) } else { next() })
}

/// Records that the descriptor `new`, a duplicate of `old`, may be a device if `old` may be one. Returns `new`.
pub(super) fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && device_fds::may_be(old) {
        device_fds::add(new);
    }
    new
}

pub(super) fn fcntl(fd: c_int, command: c_int, result: c_int) -> c_int {
    let duplicates = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if duplicates { duplicated(fd, result) } else { result }
}
