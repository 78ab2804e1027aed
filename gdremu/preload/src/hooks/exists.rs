//! Hooks of access and stat. For /dev/gdrdrv they return what the system returns for /dev/null, with another device
//! number. If gdremu's options make open of /dev/gdrdrv fail with EACCES, the permissions differ, too.

use std::ffi::{c_int, c_uint};

use gdremu_core::errno::Errno;

use super::paths::{self, Place, find};
use crate::descriptors::Kind;
use crate::hints::device_fds;
use crate::next::{Stat, Statx, Text};
use crate::system::{fail, stat_at};
use crate::{settings, state};

/// The major device number of the emulated device, from the range that Linux assigns dynamically.
const MAJOR: c_uint = 240;

/// Returns the permission bits that the device's mode lacks: those of its group and of others if gdremu's options make
/// open fail with EACCES, otherwise none.
fn missing_permissions() -> u16 {
    if settings::config().driver.open_errno == Some(Errno::EACCES) { 0o066 } else { 0 }
}

pub(super) fn access(dirfd: c_int, path: Text, wanted: c_int, next: impl FnOnce(Text) -> c_int) -> c_int {
    let named = find(dirfd, path);
    if named == Place::Device && settings::config().driver.loaded {
        let denied = libc::X_OK | if missing_permissions() == 0 { 0 } else { libc::R_OK | libc::W_OK };
        return if wanted & denied == 0 { 0 } else { fail(Errno::EACCES) };
    }
    next(named.path(path))
}

pub(super) fn is_device(fd: c_int) -> bool {
    if !device_fds::may_be(fd) {
        return false;
    }
    let Some(process) = state::enter() else {
        return false;
    };
    matches!(process.descriptors.find(fd), Some((_, Kind::Device | Kind::Foreign)))
}

/// Makes a call, such as stat, that looks at a file. If the file is /dev/gdrdrv, `describe` then changes the result.
fn look(dirfd: c_int, path: Text, next: impl FnOnce(Text) -> c_int, describe: impl FnOnce()) -> c_int {
    let named = find(dirfd, path);
    let result = next(named.path(path));
    if result == 0 && named == Place::Device {
        describe();
    }
    result
}

/// The hook of stat(2), lstat(2) and fstatat(2).
///
/// # Safety
/// `next` writes `status` if it succeeds.
pub(super) unsafe fn stat(dirfd: c_int, path: Text, status: Stat, next: impl FnOnce(Text) -> c_int) -> c_int {
    // SAFETY: `look` runs this only after `next` has succeeded, and so has written `status`.
    look(dirfd, path, next, || unsafe {
        (*status).st_rdev = libc::makedev(MAJOR, 0);
        (*status).st_mode &= !u32::from(missing_permissions());
    })
}

/// # Safety
/// `status` can be written.
pub(super) unsafe fn fstat(fd: c_int, status: Stat, next: impl FnOnce() -> c_int) -> c_int {
    if !is_device(fd) {
        return next();
    }
    let looks = |path: Text| {
        let path = path.get().unwrap_or_default();
        // SAFETY: `status` can be written: contract of this function.
        unsafe { stat_at(libc::AT_FDCWD, path, status, 0) }
    };
    // SAFETY: `status` can be written: contract of this function.
    unsafe { stat(libc::AT_FDCWD, paths::DEVICE, status, looks) }
}

/// # Safety
/// `next` writes `status` if it succeeds.
pub(super) unsafe fn statx(dirfd: c_int, path: Text, status: Statx, next: impl FnOnce(Text) -> c_int) -> c_int {
    // SAFETY: `look` runs this only after `next` has succeeded, and so has written `status`.
    look(dirfd, path, next, || unsafe {
        (*status).stx_rdev_major = MAJOR;
        (*status).stx_rdev_minor = 0;
        (*status).stx_mode &= !missing_permissions();
    })
}
