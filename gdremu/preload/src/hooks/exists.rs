//! access, stat and readlink on gdrdrv's files.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::zeroed;

use gdremu_core::errno::Errno;
use libc::{mode_t, size_t, ssize_t};

use super::paths::{Target, target};
use super::stand_ins::at_stand_in;
use super::to_libc;
use crate::devices::Descriptor;
use crate::hints::device_fds;
use crate::{next, settings, state};

/// A major number of the range that Linux assigns dynamically.
const MAJOR: c_uint = 240;

fn mode(target: Target) -> mode_t {
    match target {
        Target::Device if settings::config().driver.open_errno == Some(Errno::EACCES) => {
            libc::S_IFCHR | 0o600
        }
        Target::Device => libc::S_IFCHR | 0o666,
        Target::ProcDirectory => libc::S_IFDIR | 0o555,
        Target::Params | Target::Refcount => libc::S_IFREG | 0o444,
    }
}

fn check_access(target: Target, wanted: c_int) -> Result<c_int, Errno> {
    let allowed = (mode(target) & 0o7) as c_int;
    if !target.exists() {
        Err(Errno::ENOENT)
    } else if wanted & !allowed != 0 {
        Err(Errno::EACCES)
    } else {
        Ok(0)
    }
}

/// Spellings of access(2).
macro_rules! access {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, wanted: c_int) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                match target(libc::AT_FDCWD, path) {
                    Some(target) => to_libc(check_access(target, wanted)),
                    None => at_stand_in(libc::AT_FDCWD, path, |path| next::$name()(path, wanted)),
                }
            }
        }
    )*};
}

access!(access, eaccess, euidaccess);

pub(crate) unsafe extern "C" fn faccessat(
    dirfd: c_int,
    path: *const c_char,
    wanted: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    unsafe {
        match target(dirfd, path) {
            Some(target) => to_libc(check_access(target, wanted)),
            None => at_stand_in(dirfd, path, |path| next::faccessat()(dirfd, path, wanted, flags)),
        }
    }
}

/// Fills a `struct stat` for one of gdrdrv's files.
///
/// # Safety
/// `status` can be written.
unsafe fn fill(target: Target, status: *mut libc::stat) -> Result<c_int, Errno> {
    if !target.exists() {
        return Err(Errno::ENOENT);
    }
    // SAFETY: zeros are valid in a structure of numbers; `status` is writable: contract of this function.
    unsafe {
        let mut new: libc::stat = zeroed();
        new.st_mode = mode(target);
        new.st_nlink = 1;
        new.st_blksize = 4096;
        if target == Target::Device {
            new.st_rdev = libc::makedev(MAJOR, 0);
        }
        status.write(new);
    }
    Ok(0)
}

/// Functions that fill a `struct stat` for a path: its name, its other arguments in order.
macro_rules! stat {
    ($($name:ident in $dirfd:expr, ($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*);)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            $($before: $before_type,)*
            path: *const c_char,
            status: *mut libc::stat,
            $($after: $after_type,)*
        ) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                match target($dirfd, path) {
                    Some(target) => to_libc(fill(target, status)),
                    None => at_stand_in($dirfd, path, |path| next::$name()($($before,)* path, status, $($after,)*)),
                }
            }
        }
    )*};
}

// `struct stat64` is `struct stat` on the 64-bit platforms that gdrdrv supports.
stat! {
    stat in libc::AT_FDCWD, (;);
    stat64 in libc::AT_FDCWD, (;);
    lstat in libc::AT_FDCWD, (;);
    lstat64 in libc::AT_FDCWD, (;);
    fstatat in dirfd, (dirfd: c_int; flags: c_int);
    fstatat64 in dirfd, (dirfd: c_int; flags: c_int);
    __xstat in libc::AT_FDCWD, (version: c_int;);
    __xstat64 in libc::AT_FDCWD, (version: c_int;);
    __lxstat in libc::AT_FDCWD, (version: c_int;);
    __lxstat64 in libc::AT_FDCWD, (version: c_int;);
    __fxstatat in dirfd, (version: c_int, dirfd: c_int; flags: c_int);
    __fxstatat64 in dirfd, (version: c_int, dirfd: c_int; flags: c_int);
}

/// Whether a descriptor is a device.
fn is_device(fd: c_int) -> bool {
    device_fds::may_be(fd)
        && state::enter().is_some_and(|process| process.descriptor_of(fd) != Descriptor::Other)
}

/// Functions that fill a `struct stat` for a descriptor.
macro_rules! fstat {
    ($($name:ident($($before:ident: $before_type:ty),*);)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            $($before: $before_type,)*
            fd: c_int,
            status: *mut libc::stat,
        ) -> c_int {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                if is_device(fd) {
                    to_libc(fill(Target::Device, status))
                } else {
                    next::$name()($($before,)* fd, status)
                }
            }
        }
    )*};
}

fstat! {
    fstat();
    fstat64();
    __fxstat(version: c_int);
    __fxstat64(version: c_int);
}

pub(crate) unsafe extern "C" fn statx(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    status: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged; a structure of numbers, for which
    // zeros are values.
    unsafe {
        let Some(target) = target(dirfd, path) else {
            return at_stand_in(dirfd, path, |path| {
                next::statx()(dirfd, path, flags, mask, status)
            });
        };
        if !target.exists() {
            return to_libc(Err(Errno::ENOENT));
        }
        let mut new: libc::statx = zeroed();
        new.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
        new.stx_mode = mode(target) as u16;
        new.stx_nlink = 1;
        new.stx_blksize = 4096;
        if target == Target::Device {
            new.stx_rdev_major = MAJOR;
        }
        status.write(new);
        0
    }
}

/// Functions that read a symbolic link: its name, its other arguments in order.
macro_rules! readlink {
    ($($name:ident in $dirfd:expr, ($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*);)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            $($before: $before_type,)*
            path: *const c_char,
            text: *mut c_char,
            $($after: $after_type,)*
        ) -> ssize_t {
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe {
                match target($dirfd, path) {
                    // None of them is a link.
                    Some(target) => {
                        to_libc(check_access(target, libc::F_OK).and(Err(Errno::EINVAL))) as ssize_t
                    }
                    None => at_stand_in($dirfd, path, |path| next::$name()($($before,)* path, text, $($after,)*)),
                }
            }
        }
    )*};
}

readlink! {
    readlink in libc::AT_FDCWD, (; len: size_t);
    __readlink_chk in libc::AT_FDCWD, (; len: size_t, room: size_t);
    readlinkat in dirfd, (dirfd: c_int; len: size_t);
    __readlinkat_chk in dirfd, (dirfd: c_int; len: size_t, room: size_t);
}
