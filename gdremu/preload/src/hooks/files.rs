//! Opening and closing: open, fopen, opendir, close, dup, fcntl.

use std::ffi::{CStr, c_char, c_int, c_uint};

use gdremu_core::errno::Errno;
use gdremu_core::gpu::pci;
use libc::{FILE, mode_t};

use super::paths::{Target, target};
use super::stand_ins::at_stand_in;
use super::{from_libc, to_libc};
use crate::devices::Descriptor;
use crate::hints::device_fds;
use crate::state::{self, Guard};
use crate::system::file_status;
use crate::{next, proc_files, settings};

/// Opens one of gdrdrv's files.
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

/// Spellings of open(2).
macro_rules! open {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                target(libc::AT_FDCWD, path)
                    .and_then(|target| open_target(target, flags))
                    .unwrap_or_else(|| at_stand_in(libc::AT_FDCWD, path, |path| next::$name()(path, flags, mode)))
            }
        }
    )*};
}

open!(open, open64, __open, __open64);

/// Spellings of open(2) without a mode, from programs built with `_FORTIFY_SOURCE`.
macro_rules! open_2 {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                target(libc::AT_FDCWD, path)
                    .and_then(|target| open_target(target, flags))
                    .unwrap_or_else(|| at_stand_in(libc::AT_FDCWD, path, |path| next::$name()(path, flags)))
            }
        }
    )*};
}

open_2!(__open_2, __open64_2);

/// Spellings of openat(2).
macro_rules! openat {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            dirfd: c_int,
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                target(dirfd, path)
                    .and_then(|target| open_target(target, flags))
                    .unwrap_or_else(|| at_stand_in(dirfd, path, |path| next::$name()(dirfd, path, flags, mode)))
            }
        }
    )*};
}

openat!(openat, openat64);

/// Spellings of openat(2) without a mode.
macro_rules! openat_2 {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                target(dirfd, path)
                    .and_then(|target| open_target(target, flags))
                    .unwrap_or_else(|| at_stand_in(dirfd, path, |path| next::$name()(dirfd, path, flags)))
            }
        }
    )*};
}

openat_2!(__openat_2, __openat64_2);

/// Spellings of fopen(3).
macro_rules! fopen {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                let Some(target) = target(libc::AT_FDCWD, path) else {
                    return at_stand_in(libc::AT_FDCWD, path, |path| next::$name()(path, mode));
                };
                let flags = match CStr::from_ptr(mode).to_bytes() {
                    [b'r', rest @ ..] if rest.contains(&b'+') => libc::O_RDWR,
                    [b'r', ..] => libc::O_RDONLY,
                    _ => libc::O_WRONLY,
                };
                let Some(fd) = open_target(target, flags) else {
                    return next::$name()(path, mode);
                };
                if fd < 0 { std::ptr::null_mut() } else { libc::fdopen(fd, mode) }
            }
        }
    )*};
}

fopen!(fopen, fopen64);

/// Lists the real directory if there is one: the emulated one has only the
/// entries that are emulated. That of PCI devices has the real ones, too.
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the caller's argument is passed on unchanged; `at_stand_in` passes on paths that end
    // with a NUL byte.
    unsafe {
        at_stand_in(libc::AT_FDCWD, path, |place| {
            let is_complete =
                || CStr::from_ptr(place).to_bytes().ends_with(pci::DEVICES.as_bytes());
            if place != path && !is_complete() {
                let real = next::opendir()(path);
                if !real.is_null() || Errno::last() != Errno::ENOENT {
                    return real;
                }
            }
            next::opendir()(place)
        })
    }
}

/// Closes a descriptor that may be a device's or an export's; `run` does the close.
fn close_device(fd: c_int, run: impl FnOnce() -> c_int) -> c_int {
    let Some(mut process) = state::enter() else {
        return run();
    };
    device_fds::remove(fd);
    if process.exported(fd).is_some() {
        return process.close_export(fd, run);
    }
    match process.descriptor_of(fd) {
        Descriptor::Own(identity, file) => {
            to_libc(process.close(identity, file, || from_libc(run())).map(|()| 0))
        }
        _ => run(),
    }
}

/// Spellings of close(2).
macro_rules! close {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(fd: c_int) -> c_int {
            // SAFETY: the caller's argument is passed on unchanged.
            let run = || unsafe { next::$name()(fd) };
            if device_fds::may_be(fd) { close_device(fd, run) } else { run() }
        }
    )*};
}

close!(close, __close);

/// Closes a range of descriptors that may contain devices; `run` does the close.
fn close_devices(first: c_uint, last: c_uint, run: impl FnOnce() -> c_int) -> c_int {
    let devices = device_fds::within(first, last);
    if devices.is_empty() {
        return run();
    }
    let Some(mut process) = state::enter() else {
        return run();
    };
    let result = run();
    // close_range may also have only marked them close-on-exec.
    for fd in devices.into_iter().filter(|fd| file_status(*fd).is_none()) {
        device_fds::remove(fd);
    }
    process.reap_all();
    result
}

pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    close_devices(first, last, || {
        // SAFETY: the caller's arguments are passed on unchanged.
        unsafe { next::close_range()(first, last, flags) }
    })
}

pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    close_devices(first.max(0) as c_uint, c_uint::MAX, || {
        // SAFETY: the caller's argument is passed on unchanged.
        unsafe { next::closefrom()(first) };
        0
    });
}

/// After `old` became `new` too.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && device_fds::may_be(old) {
        device_fds::add(new);
    }
    new
}

pub(crate) unsafe extern "C" fn dup(old: c_int) -> c_int {
    // SAFETY: the caller's argument is passed on unchanged.
    duplicated(old, unsafe { next::dup()(old) })
}

/// Makes `new` the same as `old`, which closes what `new` was.
fn replace(old: c_int, new: c_int, run: impl FnOnce() -> c_int) -> c_int {
    if old == new || !device_fds::may_be(new) {
        return duplicated(old, run());
    }
    let Some(mut process) = state::enter() else {
        return run();
    };
    let result = run();
    if result >= 0 {
        device_fds::remove(new);
        process.reap_all();
    }
    duplicated(old, result)
}

pub(crate) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    replace(old, new, || unsafe { next::dup2()(old, new) })
}

pub(crate) unsafe extern "C" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    replace(old, new, || unsafe { next::__dup2()(old, new) })
}

pub(crate) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    replace(old, new, || unsafe { next::dup3()(old, new, flags) })
}

/// Spellings of fcntl(2); its last argument is a number or a pointer, or absent.
macro_rules! fcntl {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            let result = unsafe { next::$name()(fd, command, argument) };
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                duplicated(fd, result)
            } else {
                result
            }
        }
    )*};
}

fcntl!(fcntl, fcntl64, __fcntl);
