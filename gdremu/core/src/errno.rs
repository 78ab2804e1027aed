//! Error numbers as values, with their names.
#![forbid(unsafe_code)]

use std::fmt;

/// An error number of the system, positive as in `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// Declares the constants and the name table from one list, so that they cannot drift apart.
macro_rules! named {
    ($($name:ident = $value:expr),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Errno = Errno($value);)*
        }
        const NAMES: &[(&str, Errno)] = &[$((stringify!($name), Errno::$name)),*];
    };
}

named! {
    EPERM = libc::EPERM, ENOENT = libc::ENOENT, EINTR = libc::EINTR, EIO = libc::EIO,
    ENXIO = libc::ENXIO, EBADF = libc::EBADF, EAGAIN = libc::EAGAIN, ENOMEM = libc::ENOMEM,
    EACCES = libc::EACCES, EFAULT = libc::EFAULT, EBUSY = libc::EBUSY, EEXIST = libc::EEXIST,
    ENODEV = libc::ENODEV, ENOTDIR = libc::ENOTDIR, EINVAL = libc::EINVAL, ENFILE = libc::ENFILE,
    EMFILE = libc::EMFILE, ENOTTY = libc::ENOTTY, ENOSPC = libc::ENOSPC, ENOSYS = libc::ENOSYS,
    EOVERFLOW = libc::EOVERFLOW, EOPNOTSUPP = libc::EOPNOTSUPP, ETIMEDOUT = libc::ETIMEDOUT,
    // Internal to the kernel, but the GPU driver returns it to user space.
    ENOTSUPP = 524,
}

impl Errno {
    /// The symbolic name, if it is one that the emulation knows.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(_, errno)| *errno == self)
            .map(|(name, _)| *name)
    }

    /// Reads a symbolic name (`EIO`, in any case) or a positive number.
    pub fn parse(text: &str) -> Option<Errno> {
        NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, errno)| *errno)
            .or_else(|| text.parse().ok().filter(|n| *n > 0).map(Errno))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn names_and_numbers_are_read_back() {
        for errno in [Errno::EIO, Errno::ENOTSUPP, Errno(77)] {
            assert_eq!(Errno::parse(&errno.to_string()), Some(errno));
        }
        assert_eq!(Errno::parse("eio"), Some(Errno::EIO));
        assert_eq!(Errno::parse("EWHAT"), None);
        assert_eq!(Errno::parse("0"), None);
        assert_eq!(Errno::parse("-5"), None);
    }
}
