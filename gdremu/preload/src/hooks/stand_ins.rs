//! Emulated files below /proc and /sys, in the session directory.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::paths::{Absolute, Target, target};
use crate::next::{self, Text};
use crate::settings;

/// Makes a call with a path. `ours` is for one of gdrdrv's files. Otherwise, or if that does not answer, `next` gets
/// the path of the emulated file, if there is one.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn at_path<R>(
    dirfd: c_int,
    path: Text,
    ours: impl FnOnce(Target) -> Option<R>,
    next: impl FnOnce(Text) -> R,
) -> R {
    // SAFETY: contract of this function.
    unsafe {
        let answer = target(dirfd, path).and_then(ours);
        answer.unwrap_or_else(|| at_stand_in(dirfd, path, next))
    }
}

/// Makes a call with the path of the emulated file for `path`, or with `path` if there is none.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn at_stand_in<R>(dirfd: c_int, path: Text, call: impl FnOnce(Text) -> R) -> R {
    // SAFETY: `path` is NULL or ends with a NUL byte: contract of this function.
    match unsafe { stand_in(dirfd, path) } {
        Some(file) => call(file.as_ptr()),
        None => call(path),
    }
}

fn may_be_emulated(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") || path.starts_with(b"/sys/")
}

unsafe fn stand_in(dirfd: c_int, path: Text) -> Option<CString> {
    if path.is_null() {
        return None;
    }
    // SAFETY: `path` is NULL or ends with a NUL byte: contract of `at_stand_in`.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // Fast exit for almost all absolute paths.
    if path.starts_with(b"/") && !may_be_emulated(path) && !path.windows(3).any(|part| part == b"/..") {
        return None;
    }
    let absolute = Absolute::new(dirfd, path)?;
    let path = absolute.bytes();
    if !may_be_emulated(path) {
        return None;
    }
    let file = settings::files()?.join(OsStr::from_bytes(&path[1..]));
    let file = CString::new(file.into_os_string().into_vec()).ok()?;
    // SAFETY: a CString ends with a NUL byte.
    (unsafe { next::access()(file.as_ptr(), libc::F_OK) } == 0).then_some(file)
}
