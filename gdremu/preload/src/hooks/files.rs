//! Opening and closing, by open, fopen, opendir, close, dup, fcntl.

use std::ffi::{CStr, c_int, c_uint};

use gdremu_core::errno::Errno;
use gdremu_core::gpu::pci;
use libc::{AT_FDCWD, DIR, FILE};

use super::paths::Target;
use super::results::{from_libc, to_libc};
use super::stand_ins::{at_path, at_stand_in};
use crate::descriptors::Descriptor;
use crate::hints::device_fds;
use crate::next::Text;
use crate::state::{self, Guard};
use crate::system::file_status;
use crate::{proc_files, settings};

fn open_target(target: Target, flags: c_int) -> Option<c_int> {
    let mut process = state::enter()?;
    Some(to_libc(match target {
        Target::Device => process.open(flags),
        Target::ProcDirectory => Err(Errno::ENOENT),
        Target::Params | Target::Refcount => open_proc(&mut process, target, flags),
    }))
}

fn open_proc(process: &mut Guard, target: Target, flags: c_int) -> Result<c_int, Errno> {
    if !target.exists() {
        return Err(Errno::ENOENT);
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno::EACCES);
    }
    if target == Target::Refcount {
        return process.open_refcount(flags);
    }
    let text = proc_files::params(&settings::config().driver);
    proc_files::open(proc_files::PARAMS, &text, flags)
}

/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn open(dirfd: c_int, path: Text, flags: c_int, next: impl FnOnce(Text) -> c_int) -> c_int {
    // SAFETY: contract of this function.
    unsafe { at_path(dirfd, path, |target| open_target(target, flags), next) }
}

/// # Safety
/// `path` and `mode` end with a NUL byte.
pub(super) unsafe fn fopen(path: Text, mode: Text, next: impl FnOnce(Text) -> *mut FILE) -> *mut FILE {
    let open = |target| {
        // SAFETY: the mode is fopen's: contract of this function.
        let flags = match unsafe { CStr::from_ptr(mode) }.to_bytes() {
            [b'r', rest @ ..] if rest.contains(&b'+') => libc::O_RDWR,
            [b'r', ..] => libc::O_RDONLY,
            _ => libc::O_WRONLY,
        };
        let fd = open_target(target, flags)?;
        if fd < 0 {
            return Some(std::ptr::null_mut());
        }
        // SAFETY: as above, and the descriptor was just opened.
        Some(unsafe { libc::fdopen(fd, mode) })
    };
    // SAFETY: contract of this function.
    unsafe { at_path(AT_FDCWD, path, open, next) }
}

/// Lists the real directory if there is one, because the emulated one has only
/// the entries that are emulated. That of PCI devices also has the real ones.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn opendir(path: Text, next: impl Fn(Text) -> *mut DIR) -> *mut DIR {
    let open = |place| {
        // SAFETY: paths of `at_stand_in` end with a NUL byte.
        let is_complete = || unsafe { CStr::from_ptr(place) }.to_bytes().ends_with(pci::DEVICES.as_bytes());
        if place != path && !is_complete() {
            let real = next(path);
            if !real.is_null() || Errno::last() != Errno::ENOENT {
                return real;
            }
        }
        next(place)
    };
    // SAFETY: contract of this function.
    unsafe { at_stand_in(AT_FDCWD, path, open) }
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
        Descriptor::Export(file, _) => {
            let result = next();
            process.reap(file);
            result
        }
        Descriptor::Device(file) => to_libc(process.close(file, || from_libc(next())).map(|()| 0)),
        _ => next(),
    }
}

pub(super) fn close_range(first: c_uint, last: c_uint, next: impl FnOnce() -> c_int) -> c_int {
    let devices = device_fds::within(first, last);
    if devices.is_empty() {
        return next();
    }
    let Some(mut process) = state::enter() else {
        return next();
    };
    let result = next();
    // close_range may also have only marked them close-on-exec.
    for fd in devices.into_iter().filter(|fd| file_status(*fd).is_none()) {
        device_fds::remove(fd);
    }
    process.reap_all();
    result
}

pub(super) fn closefrom(first: c_int, next: impl FnOnce()) {
    close_range(first.max(0) as c_uint, c_uint::MAX, || {
        next();
        0
    });
}

/// dup(2), after `old` became `new` too.
pub(super) fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && device_fds::may_be(old) {
        device_fds::add(new);
    }
    new
}

/// dup2(2) and dup3(2), which close what `new` was.
pub(super) fn dup2(old: c_int, new: c_int, next: impl FnOnce() -> c_int) -> c_int {
    if old == new || !device_fds::may_be(new) {
        return duplicated(old, next());
    }
    let Some(mut process) = state::enter() else {
        return next();
    };
    let result = next();
    if result >= 0 {
        device_fds::remove(new);
        process.reap_all();
    }
    duplicated(old, result)
}

/// fcntl(2), after it was made.
pub(super) fn fcntl(fd: c_int, command: c_int, result: c_int) -> c_int {
    let duplicates = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    if duplicates { duplicated(fd, result) } else { result }
}
