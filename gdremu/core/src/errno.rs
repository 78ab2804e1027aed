//! Error numbers as values, with their names.
#![forbid(unsafe_code)]

use std::str::FromStr;
use std::{fmt, io};

use nix::errno::Errno as Known;
use serde::{Deserialize, Serialize};

/// An error number, positive as in `errno`. Unlike nix's type, it can also hold a number that Linux does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

macro_rules! constants {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*
        }
    };
}

constants! {
    EPERM, ENOENT, EIO, EBADF, ENOMEM, EACCES, EFAULT, EBUSY, ENODEV, EINVAL, ENOTTY, EOVERFLOW, EOPNOTSUPP,
}

impl Errno {
    /// Linux uses this number only internally, but the GPU driver returns it to user space.
    pub const ENOTSUPP: Errno = Errno(524);

    pub fn last() -> Errno {
        Errno(Known::last_raw())
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno)
    }
}

impl From<Known> for Errno {
    fn from(error: Known) -> Errno {
        Errno(error as i32)
    }
}

/// Reads a name (such as `EIO`, in capital or small letters) or a positive number.
impl FromStr for Errno {
    type Err = String;

    fn from_str(text: &str) -> Result<Errno, String> {
        for number in 1..1000 {
            let errno = Errno(number);
            if errno.to_string().eq_ignore_ascii_case(text) {
                return Ok(errno);
            }
        }
        match text.parse() {
            Ok(number) if number > 0 => Ok(Errno(number)),
            _ => Err("not an errno name or number".into()),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, Known::from_raw(self.0)) {
            (Errno::ENOTSUPP, _) => f.write_str("ENOTSUPP"),
            (_, Known::UnknownErrno) => write!(f, "{}", self.0),
            (_, known) => write!(f, "{known:?}"),
        }
    }
}
