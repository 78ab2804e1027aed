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

/// A release of gdrdrv, `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`. Only the version is reported to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// What GET_VERSION returns.
    pub version: Version,
    /// 0 if there is none.
    pub patch: u16,
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (version, patch) = match text.rsplit_once('.') {
            Some((version, patch)) if version.contains('.') => (version, patch),
            _ => (text, "0"),
        };
        let patch = patch
            .parse()
            .map_err(|_| format!("\"{text}\" is not MAJOR.MINOR or MAJOR.MINOR.PATCH"))?;
        version.parse().map(|version| Release { version, patch })
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
    use super::{Release, Version};

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

    #[test]
    fn releases_may_have_a_third_number() {
        let release = |text: &str| {
            let Release { version, patch } = text.parse().unwrap();
            (version, patch)
        };
        assert_eq!(release("2.4"), (Version::new(2, 4), 0));
        assert_eq!(release("2.4.4"), (Version::new(2, 4), 4));
        for wrong in ["2", "2.4.", "2.4.x", "2.4.4.4"] {
            assert!(wrong.parse::<Release>().is_err(), "{wrong}");
        }
    }
}
