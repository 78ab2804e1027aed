//! access, stat and readlink on gdrdrv's files.

use std::ffi::{c_int, c_uint};
use std::mem::zeroed;

use gdremu_core::errno::Errno;
use libc::{mode_t, ssize_t};

use super::paths::Target;
use super::results::to_libc;
use super::stand_ins::at_path;
use crate::descriptors::Descriptor;
use crate::hints::device_fds;
use crate::next::{Stat, Statx, Text};
use crate::{settings, state};

/// A major number of the range that Linux assigns dynamically.
const MAJOR: c_uint = 240;

fn mode(target: Target) -> mode_t {
    match target {
        Target::Device if settings::config().driver.open_errno == Some(Errno::EACCES) => libc::S_IFCHR | 0o600,
        Target::Device => libc::S_IFCHR | 0o666,
        Target::ProcDirectory => libc::S_IFDIR | 0o555,
        Target::Params | Target::Refcount => libc::S_IFREG | 0o444,
    }
}

/// The type and permissions of a file that exists.
fn check_exists(target: Target) -> Result<mode_t, Errno> {
    if target.exists() { Ok(mode(target)) } else { Err(Errno::ENOENT) }
}

fn check_access(target: Target, wanted: c_int) -> Result<c_int, Errno> {
    let allowed = (check_exists(target)? & 0o7) as c_int;
    if wanted & !allowed == 0 { Ok(0) } else { Err(Errno::EACCES) }
}

/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn access(dirfd: c_int, path: Text, wanted: c_int, next: impl FnOnce(Text) -> c_int) -> c_int {
    // SAFETY: contract of this function.
    unsafe { at_path(dirfd, path, |target| Some(to_libc(check_access(target, wanted))), next) }
}

/// Fills a `struct stat` for one of gdrdrv's files.
///
/// # Safety
/// `status` can be written.
unsafe fn fill(target: Target, status: Stat) -> Result<c_int, Errno> {
    let mode = check_exists(target)?;
    // SAFETY: zeros are valid in a structure of numbers; `status` is writable: contract of this function.
    unsafe {
        let mut new: libc::stat = zeroed();
        new.st_mode = mode;
        new.st_nlink = 1;
        new.st_blksize = 4096;
        if target == Target::Device {
            new.st_rdev = libc::makedev(MAJOR, 0);
        }
        status.write(new);
    }
    Ok(0)
}

/// stat(2), lstat(2) and fstatat(2)
///
/// # Safety
/// `path` is NULL or ends with a NUL byte; `status` can be written.
pub(super) unsafe fn stat(dirfd: c_int, path: Text, status: Stat, next: impl FnOnce(Text) -> c_int) -> c_int {
    // SAFETY: contract of this function.
    unsafe { at_path(dirfd, path, |target| Some(to_libc(fill(target, status))), next) }
}

/// Returns whether a descriptor is a device.
fn is_device(fd: c_int) -> bool {
    device_fds::may_be(fd)
        && state::enter()
            .is_some_and(|process| matches!(process.descriptors.find(fd), Descriptor::Device(_) | Descriptor::Foreign))
}

/// # Safety
/// `status` can be written.
pub(super) unsafe fn fstat(fd: c_int, status: Stat, next: impl FnOnce() -> c_int) -> c_int {
    if !is_device(fd) {
        return next();
    }
    // SAFETY: contract of this function.
    to_libc(unsafe { fill(Target::Device, status) })
}

/// # Safety
/// `path` is NULL or ends with a NUL byte; `status` can be written.
pub(super) unsafe fn statx(dirfd: c_int, path: Text, status: Statx, next: impl FnOnce(Text) -> c_int) -> c_int {
    let fill = |target: Target| {
        let mode = check_exists(target)?;
        // SAFETY: zeros are valid in a structure of numbers.
        let mut new: libc::statx = unsafe { zeroed() };
        new.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
        new.stx_mode = mode as u16;
        new.stx_nlink = 1;
        new.stx_blksize = 4096;
        if target == Target::Device {
            new.stx_rdev_major = MAJOR;
        }
        // SAFETY: `status` can be written: contract of this function.
        unsafe { status.write(new) };
        Ok(0)
    };
    // SAFETY: contract of this function.
    unsafe { at_path(dirfd, path, |target| Some(to_libc(fill(target))), next) }
}

/// readlink(2) and readlinkat(2). None of gdrdrv's files is a link.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn readlink(dirfd: c_int, path: Text, next: impl FnOnce(Text) -> ssize_t) -> ssize_t {
    let refuse = |target| check_exists(target).and(Err(Errno::EINVAL));
    // SAFETY: contract of this function.
    unsafe { at_path(dirfd, path, |target| Some(to_libc(refuse(target)) as ssize_t), next) }
}
