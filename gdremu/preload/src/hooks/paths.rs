//! Recognizes the paths of gdrdrv's files, and of emulated files below /proc and /sys.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::next::{self, Text};
use crate::settings;

pub(super) const DEVICE: Text = Text::of(c"/dev/gdrdrv");
const REFCOUNT: &[u8] = b"/proc/driver/gdrdrv/nv_get_pages_refcount";

#[derive(PartialEq, Eq)]
pub(super) enum Place {
    Device,
    /// /proc/driver/gdrdrv/nv_get_pages_refcount. Calls that only look at it, such as stat, get this path of a file in
    /// gdremu's temporary directory instead.
    Refcount(CString),
    /// An emulated file below /proc or /sys, by its path in gdremu's temporary directory. Nothing is at
    /// this path if the program asks for a file that the emulated gdrdrv does not have.
    Emulated(CString),
    Real,
}

impl Place {
    /// Returns the path to pass to a call, such as stat, that only looks at the file. The program passed `path`.
    pub(super) fn path<'a>(&'a self, path: Text<'a>) -> Text<'a> {
        match self {
            Place::Device if settings::config().driver.loaded => Text::of(c"/dev/null"), // Anyone may read and write it.
            Place::Device => Text::of(c""),                                              // Calls fail with ENOENT.
            Place::Refcount(file) | Place::Emulated(file) => Text::of(file),
            Place::Real => path,
        }
    }
}

pub(super) fn find(dirfd: c_int, path: Text) -> Place {
    let path = path.get().unwrap_or_default().to_bytes();
    // Almost all calls with absolute paths return here, before the slow search below.
    if path.starts_with(b"/") && !is_below_proc_or_sys(path) && !contains(path, b"/..") && !contains(path, b"gdrdrv") {
        return Place::Real;
    }
    match Absolute::new(dirfd, path) {
        Some(absolute) => place_of(absolute.bytes()),
        None => Place::Real,
    }
}

fn place_of(path: &[u8]) -> Place {
    let is_proc_file = path == b"/proc/driver/gdrdrv" || path.starts_with(b"/proc/driver/gdrdrv/");
    let is_device = path == b"/dev/gdrdrv";
    let is_gdrdrvs = is_proc_file || is_device;
    if is_gdrdrvs && !settings::config().gpu.provider.emulates_gdrdrv() {
        return Place::Real;
    }
    if is_device {
        return Place::Device;
    }
    if !is_below_proc_or_sys(path) {
        return Place::Real;
    }
    let Some(session) = settings::session() else {
        return Place::Real;
    };
    let file = session.files().join(OsStr::from_bytes(&path[1..])).into_os_string();
    let Ok(file) = CString::new(file.into_vec()) else {
        return Place::Real;
    };
    // SAFETY: the call only checks whether the file exists.
    let exists = unsafe { next::access()(Text::of(&file), libc::F_OK) } == 0;
    if exists && path == REFCOUNT {
        return Place::Refcount(file);
    }
    if exists || is_proc_file { Place::Emulated(file) } else { Place::Real }
}

/// Makes a call that only looks at a file. If gdremu emulates the file, passes the path of its replacement.
pub(super) fn at_stand_in<R>(dirfd: c_int, path: Text, call: impl FnOnce(Text) -> R) -> R {
    call(find(dirfd, path).path(path))
}

fn is_below_proc_or_sys(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") || path.starts_with(b"/sys/")
}

fn contains(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|place| place == part)
}

/// An absolute path without `.` and `..`. It is on the stack, because programs also call open where no memory may be
/// allocated, such as in signal handlers.
struct Absolute {
    bytes: [u8; MAX],
    len: usize,
}

const MAX: usize = libc::PATH_MAX as usize;

impl Absolute {
    /// Returns the absolute form of a path that is relative to a directory (for `AT_FDCWD` the working one), or `None`
    /// if the directory has no path, or the path is empty or too long.
    fn new(dirfd: c_int, path: &[u8]) -> Option<Absolute> {
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

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn dirfd_path(dirfd: c_int, room: &mut [u8; MAX]) -> Option<&[u8]> {
    if dirfd == libc::AT_FDCWD {
        // SAFETY: `room` is writable for its length.
        let path = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
        if path.is_null() {
            return None;
        }
        return Some(CStr::from_bytes_until_nul(room).ok()?.to_bytes());
    }
    let mut link = [0_u8; 32];
    write!(&mut link[..], "/proc/self/fd/{dirfd}").ok()?;
    let link = Text::of(CStr::from_bytes_until_nul(&link).ok()?);
    // SAFETY: `room` is writable for its length.
    let len = unsafe { next::readlink()(link, room.as_mut_ptr().cast(), room.len()) };
    Some(&room[..usize::try_from(len).ok()?])
}
