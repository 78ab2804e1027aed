//! Which paths are the module's.

use std::ffi::{CStr, c_char};

use crate::state;

/// A file of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `/dev/gdrdrv`
    Device,
    /// `/proc/driver/gdrdrv`
    ProcFolder,
    /// `/proc/driver/gdrdrv/params`
    Params,
    /// `/proc/driver/gdrdrv/nv_get_pages_refcount`
    Refcount,
}

/// The emulated module's file that an absolute path names, if any.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn target(path: *const c_char) -> Option<Target> {
    // SAFETY: as the caller promises.
    unsafe { by_name(path) }.filter(|_| state::config().gpu.provider.emulates_gdrdrv())
}

/// # Safety
/// As for [`target`].
unsafe fn by_name(path: *const c_char) -> Option<Target> {
    // SAFETY: reads one byte of a text that ends with a NUL byte.
    if path.is_null() || unsafe { *path } != b'/' as c_char {
        return None;
    }
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // Nearly every path ends here, without its parts being looked at.
    path.windows(6)
        .any(|part| part == b"gdrdrv")
        .then(|| by_parts(path))
        .flatten()
}

fn by_parts(path: &[u8]) -> Option<Target> {
    let mut parts = path
        .split(|c| *c == b'/')
        .filter(|part| !matches!(*part, b"" | b"."));
    let mut next = || parts.next().unwrap_or_default();
    let first_four: [&[u8]; 4] = [next(), next(), next(), next()];
    if parts.next().is_some() {
        return None;
    }
    match first_four {
        [b"dev", b"gdrdrv", b"", b""] => Some(Target::Device),
        [b"proc", b"driver", b"gdrdrv", b""] => Some(Target::ProcFolder),
        [b"proc", b"driver", b"gdrdrv", b"params"] => Some(Target::Params),
        [b"proc", b"driver", b"gdrdrv", b"nv_get_pages_refcount"] => Some(Target::Refcount),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &CStr) -> Option<Target> {
        // SAFETY: a C string.
        unsafe { by_name(path.as_ptr()) }
    }

    #[test]
    fn the_modules_files_are_known_however_they_are_spelled() {
        assert_eq!(of(c"/dev/gdrdrv"), Some(Target::Device));
        assert_eq!(of(c"//dev/./gdrdrv"), Some(Target::Device));
        assert_eq!(of(c"/proc/driver/gdrdrv/"), Some(Target::ProcFolder));
        assert_eq!(of(c"/proc/driver/gdrdrv/params"), Some(Target::Params));
        assert_eq!(
            of(c"/proc/driver/gdrdrv/nv_get_pages_refcount"),
            Some(Target::Refcount)
        );
    }

    #[test]
    fn others_are_not() {
        for path in [
            c"/dev/gdrdrv2",
            c"/dev/x/gdrdrv",
            c"dev/gdrdrv",
            c"/gdrdrv",
            c"",
            c"/dev",
        ] {
            assert_eq!(of(path), None, "{path:?}");
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { by_name(std::ptr::null()) }, None);
    }
}
