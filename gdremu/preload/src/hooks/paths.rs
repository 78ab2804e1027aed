//! Recognizes the paths of gdrdrv's files.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use crate::{next, settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Device,
    ProcDirectory,
    Params,
    Refcount,
}

impl Target {
    /// Returns whether the module is loaded and has this file.
    pub(super) fn exists(self) -> bool {
        let driver = &settings::config().driver;
        driver.loaded && (self == Target::Device || driver.has_proc_files())
    }
}

/// An absolute path without `.` and `..`. On the stack, because callers of open may not be able to
/// allocate.
pub(super) struct Absolute {
    bytes: [u8; MAX],
    len: usize,
}

const MAX: usize = libc::PATH_MAX as usize;

impl Absolute {
    /// The absolute form of a path that is relative to a directory (for `AT_FDCWD` the working one).
    /// `None` if that directory has no path, or if the path is empty or too long.
    pub(super) fn new(dirfd: c_int, path: &[u8]) -> Option<Absolute> {
        let mut absolute = Absolute { bytes: [0; MAX], len: 0 };
        if path.first()? != &b'/' {
            let mut base = [0; MAX];
            let base = dirfd_path(dirfd, &mut base)?;
            absolute.append(base)?;
        }
        absolute.append(path)?;
        Some(absolute)
    }

    fn append(&mut self, path: &[u8]) -> Option<()> {
        for part in path.split(|c| *c == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let parent = self.bytes().iter().rposition(|c| *c == b'/');
                    self.len = parent.unwrap_or(0);
                }
                _ => {
                    let end = self.len + 1 + part.len();
                    let place = self.bytes.get_mut(self.len..end)?;
                    place[0] = b'/';
                    place[1..].copy_from_slice(part);
                    self.len = end;
                }
            }
        }
        Some(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The path of a directory.
fn dirfd_path(dirfd: c_int, room: &mut [u8; MAX]) -> Option<&[u8]> {
    if dirfd == libc::AT_FDCWD {
        // SAFETY: `room` is writable for its length.
        let path = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
        if path.is_null() {
            return None;
        }
        let path = CStr::from_bytes_until_nul(room).ok()?;
        return Some(path.to_bytes());
    }
    let mut link = [0_u8; 32];
    write!(&mut link[..], "/proc/self/fd/{dirfd}").ok()?;
    // SAFETY: `link` is longer than the text and zeroed, so it ends with a NUL byte; `room` is writable
    // for its length.
    let len = unsafe { next::readlink()(link.as_ptr().cast(), room.as_mut_ptr().cast(), room.len()) };
    Some(&room[..usize::try_from(len).ok()?])
}

/// The emulated gdrdrv file that a path names, if any.
///
/// # Safety
/// `path` is NULL or ends with a NUL byte.
pub(super) unsafe fn target(dirfd: c_int, path: *const c_char) -> Option<Target> {
    // SAFETY: `path` is NULL or ends with a NUL byte: contract of this function.
    unsafe { by_name(dirfd, path) }.filter(|_| settings::config().gpu.provider.emulates_gdrdrv())
}

/// # Safety
/// The contract of [`target`].
unsafe fn by_name(dirfd: c_int, path: *const c_char) -> Option<Target> {
    if path.is_null() {
        return None;
    }
    // SAFETY: `path` is NULL or ends with a NUL byte: contract of this function.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // Fast exit for almost all paths.
    if !path.windows(6).any(|part| part == b"gdrdrv") {
        return None;
    }
    match Absolute::new(dirfd, path)?.bytes() {
        b"/dev/gdrdrv" => Some(Target::Device),
        b"/proc/driver/gdrdrv" => Some(Target::ProcDirectory),
        b"/proc/driver/gdrdrv/params" => Some(Target::Params),
        b"/proc/driver/gdrdrv/nv_get_pages_refcount" => Some(Target::Refcount),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_above_the_root_and_no_paths_are_recognized() {
        let of = |path| {
            // SAFETY: NULL, or a C string literal.
            unsafe { by_name(libc::AT_FDCWD, path) }
        };
        assert_eq!(of(c"/../dev/./gdrdrv".as_ptr()), Some(Target::Device));
        assert_eq!(of(c"/dev/x/gdrdrv".as_ptr()), None);
        assert_eq!(of(std::ptr::null()), None);
    }
}
