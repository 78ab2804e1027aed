//! A version of gdrdrv, of the library, or of CUDA.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`, ordered as versions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
    /// The patch number, which gdrdrv does not report to programs.
    pub patch: u16,
}

impl Version {
    pub const fn new(major: u16, minor: u16) -> Self {
        Version { major, minor, patch: 0 }
    }

    /// Returns gdrdrv's encoding, `major << 16 | minor`.
    pub fn number(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Result<Vec<u16>, _> = text.split('.').map(str::parse).collect();
        match parts.as_deref() {
            Ok(&[major, minor]) => Ok(Version::new(major, minor)),
            Ok(&[major, minor, patch]) => Ok(Version { major, minor, patch }),
            _ => Err(format!("\"{text}\" is not MAJOR.MINOR or MAJOR.MINOR.PATCH")),
        }
    }
}
