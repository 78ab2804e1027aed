//! Calls that fail on purpose: `PIN_BUFFER_V2:ENOMEM@3,MMAP:EAGAIN@1`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::errno::Errno;

/// Which calls of one name fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Every,
    Nth(u64),
    From(u64),
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    call: String,
    error: Errno,
    which: Which,
}

/// The faults to inject, and how often each named call was made so far.
///
/// An entry is `NAME:ERROR` (every call fails), `NAME:ERROR@N` (the Nth, from 1) or `NAME:ERROR@N+`
/// (the Nth and all after it). NAME is a driver command, `OPEN`, `MMAP`, `MUNMAP`, `CLOSE`, or a
/// function of CUDA, in any case; ERROR an errno's name or a number.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    made: HashMap<String, u64>,
}

impl Faults {
    /// Counts a call of this name and tells the error that it shall fail with, if any.
    pub fn take(&mut self, call: &str) -> Option<Errno> {
        if self.list.is_empty() {
            return None;
        }
        let call = call.to_ascii_uppercase();
        let made = self.made.entry(call.clone()).or_default();
        *made += 1;
        let made = *made;
        self.list
            .iter()
            .filter(|fault| fault.call == call)
            .find(|fault| match fault.which {
                Which::Every => true,
                Which::Nth(n) => made == n,
                Which::From(n) => made >= n,
            })
            .map(|fault| fault.error)
    }
}

/// Two are equal when they inject the same; how far each has counted does not matter.
impl PartialEq for Faults {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Faults {}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        let list = entries.map(parse_entry).collect::<Result<_, _>>()?;
        Ok(Faults {
            list,
            made: HashMap::new(),
        })
    }
}

fn parse_entry(entry: &str) -> Result<Fault, String> {
    let wrong = |what: &str| format!("fault \"{entry}\": {what} (NAME:ERROR[@N[+]])");
    let (call, rest) = entry.split_once(':').ok_or_else(|| wrong("no error"))?;
    let (error, which) = match rest.split_once('@') {
        None => (rest, Which::Every),
        Some((error, nth)) => {
            let (digits, from) = match nth.strip_suffix('+') {
                Some(digits) => (digits, true),
                None => (nth, false),
            };
            let n = digits
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| wrong("N is from 1"))?;
            (error, if from { Which::From(n) } else { Which::Nth(n) })
        }
    };
    let error = Errno::parse(error).ok_or_else(|| wrong("unknown error"))?;
    Ok(Fault {
        call: call.to_ascii_uppercase(),
        error,
        which,
    })
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.list.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}", fault.call, fault.error)?;
            match fault.which {
                Which::Every => {}
                Which::Nth(n) => write!(f, "@{n}")?,
                Which::From(n) => write!(f, "@{n}+")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let mut faults: Faults = "mmap:EAGAIN@2, CLOSE:5@1".parse().unwrap();
        assert_eq!(faults.take("MMAP"), None);
        assert_eq!(faults.take("close"), Some(Errno::EIO));
        assert_eq!(faults.take("mmap"), Some(Errno::EAGAIN));
        assert_eq!(faults.take("mmap"), None);
        assert_eq!(faults.take("munmap"), None);
    }

    #[test]
    fn every_call_or_all_from_the_nth_on() {
        let mut faults: Faults = "A:EIO,B:EIO@2+".parse().unwrap();
        let mut errors = |call| [0; 3].map(|_| faults.take(call).is_some());
        assert_eq!(errors("A"), [true; 3]);
        assert_eq!(errors("B"), [false, true, true]);
    }

    #[test]
    fn several_faults_of_one_call() {
        let mut faults: Faults = "A:EIO@1,A:EPERM@2".parse().unwrap();
        assert_eq!(faults.take("a"), Some(Errno::EIO));
        assert_eq!(faults.take("a"), Some(Errno::EPERM));
        assert_eq!(faults.take("a"), None);
    }

    #[test]
    fn text_is_read_back() {
        let text = "MMAP:EAGAIN@2,CLOSE:EIO,GET_INFO:524@3+";
        let faults: Faults = text.parse().unwrap();
        assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults);
        assert_eq!(faults.to_string(), text.replace("524", "ENOTSUPP"));
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in ["MMAP", "MMAP:EWHAT", "MMAP:EIO@0", "MMAP:EIO@x"] {
            assert!(
                wrong.parse::<Faults>().unwrap_err().contains(wrong),
                "{wrong}"
            );
        }
    }
}
