//! Numbers of bytes with units.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K') => (&text[..text.len() - 1], 10),
            Some(b'M') => (&text[..text.len() - 1], 20),
            Some(b'G') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let Ok(number) = digits.parse::<usize>() else {
            return Err("must be a number, or one that ends in K, M or G".into());
        };
        if number > usize::MAX >> shift {
            return Err("too large".into());
        }
        Ok(Bytes(number << shift))
    }
}

impl fmt::Display for Bytes {
    /// In the largest unit without a fraction.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let size = self.0;
        match size {
            _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => {
                write!(out, "{} MiB", size >> 20)
            }
            _ if size >= 1 << 10 && size.is_multiple_of(1 << 10) => {
                write!(out, "{} KiB", size >> 10)
            }
            _ => write!(out, "{size} B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_optional() {
        assert_eq!("5000".parse(), Ok(Bytes(5000)));
        assert_eq!("64K".parse(), Ok(Bytes(65536)));
        assert_eq!("2G".parse(), Ok(Bytes(2 << 30)));
        for wrong in ["", "K", "-1", "1k", "99999999999G"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
        assert_eq!("12Q".parse::<Bytes>(), Err("must be a number, or one that ends in K, M or G".into()));
    }

    #[test]
    fn unit_is_the_largest_without_a_fraction() {
        assert_eq!(Bytes(5000).to_string(), "5000 B");
        assert_eq!(Bytes(64 << 10).to_string(), "64 KiB");
        assert_eq!(Bytes(3 << 20).to_string(), "3 MiB");
    }
}
