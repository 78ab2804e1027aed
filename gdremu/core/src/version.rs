//! A version of gdrdrv or of the library, `MAJOR.MINOR`.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// Ordered as versions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Counted up by changes that break programs.
    pub major: u16,
    /// Counted up by every release.
    pub minor: u16,
}

impl Version {
    /// A version of these parts.
    pub const fn new(major: u16, minor: u16) -> Self {
        Version { major, minor }
    }

    /// gdrdrv's encoding: `major << 16 | minor`.
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
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Version {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        };
        parse().ok_or_else(|| format!("\"{text}\" is not MAJOR.MINOR"))
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn compares_by_number_and_not_by_text() {
        let old: Version = "2.6".parse().unwrap();
        let new: Version = "2.10".parse().unwrap();
        assert!(old < new);
        assert_eq!(new.number(), 0x2000a);
        assert_eq!(new.to_string(), "2.10");
        assert!("2".parse::<Version>().is_err());
        assert!("2.x".parse::<Version>().is_err());
    }
}
