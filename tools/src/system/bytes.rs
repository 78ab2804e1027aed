//! Numbers of bytes with units.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

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
    /// Prints the number in the unit that fits, with a decimal if it is not whole in that unit.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let power = (self.0.max(1).ilog2() / 10).min(4);
        let number = self.0 as f64 / 1024f64.powi(power as i32);
        let decimals = usize::from(number.fract() != 0.0);
        write!(out, "{number:.decimals$} {}", UNITS[power as usize])
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
    fn unit_is_the_one_that_fits() {
        for (bytes, text) in [(0, "0 B"), (1000, "1000 B"), (5000, "4.9 KiB"), (64 << 10, "64 KiB"), (3 << 20, "3 MiB")]
        {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
