//! The pins of all processes, which the module of `gdrdrv-c/` lists for root.
#![forbid(unsafe_code)]

use std::{fs, io};

/// The list. NVIDIA's module has none.
pub(crate) const LIST: &str = "/proc/driver/gdrdrv/pins";

/// The first line of the list, with its columns.
const HEADER: [&str; 8] = ["pid", "uid", "gpu", "bytes", "mapped", "type", "age", "command"];
/// The values of the column `type`.
const TYPES: [&str; 4] = ["-", "WC", "cached", "device"];
const BLANKS: [char; 2] = [' ', '\t'];

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// `GPU-` and its UUID; `-` while it is being pinned.
    pub(crate) gpu: String,
    /// Pinned bytes of GPU memory.
    pub(crate) bytes: u64,
    pub(crate) is_mapped: bool,
    /// Seconds since it was pinned.
    pub(crate) age: u64,
    /// The process's name at that time, with any characters, or none.
    pub(crate) command: String,
}

/// Why there is a list, but its pins are not known.
#[derive(Debug)]
pub(crate) enum Unread {
    Refused(io::Error),
    /// This line has another form. Counted from 1.
    Line(usize),
}

/// The pins; `None` if there is no list.
pub(crate) fn query() -> Option<Result<Vec<Pin>, Unread>> {
    match fs::read(LIST) {
        Ok(list) => Some(parse(&String::from_utf8_lossy(&list)).map_err(Unread::Line)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(Unread::Refused(error))),
    }
}

/// The pins of a list, or the number of the first line that has another form, because a sum over the rest would
/// be wrong.
fn parse(list: &str) -> Result<Vec<Pin>, usize> {
    let mut lines = list.split_inclusive('\n').zip(1..);
    let header = lines.next().map(|(header, _)| header);
    if !header.is_some_and(|header| header.ends_with('\n') && header.split_whitespace().eq(HEADER)) {
        return Err(1);
    }
    lines.map(|(line, number)| pin(line).ok_or(number)).collect()
}

fn pin(line: &str) -> Option<Pin> {
    let mut rest = line.strip_suffix('\n')?.trim_start_matches(BLANKS);
    let mut column = || {
        let (column, after) = rest.split_once(BLANKS)?;
        rest = after.trim_start_matches(BLANKS);
        Some(column)
    };
    let (pid, uid) = (column()?.parse().ok()?, column()?.parse().ok()?);
    let gpu = column().filter(|gpu| *gpu == "-" || gpu.starts_with("GPU-"))?.to_owned();
    let bytes = column()?.parse().ok()?;
    let is_mapped = match column()? {
        "yes" => true,
        "no" => false,
        _ => return None,
    };
    column().filter(|kind| TYPES.contains(kind))?;
    let age = column()?.parse().ok()?;
    Some(Pin { pid, uid, gpu, bytes, is_mapped, age, command: rest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "pid uid gpu bytes mapped type age command\n";

    fn list(lines: &str) -> Result<Vec<Pin>, usize> {
        parse(&format!("{FIRST}{lines}"))
    }

    #[test]
    fn each_line_is_a_pin() {
        let pins = list(
            "4242 1000 GPU-a 2097152 yes WC 12 python3 train.py\n\
             7 0 - 65536 no - 86400 ucx\n",
        );
        let pin = |pid, uid, gpu: &str, bytes, is_mapped, age, command: &str| Pin {
            pid,
            uid,
            gpu: gpu.into(),
            bytes,
            is_mapped,
            age,
            command: command.into(),
        };
        let expected = vec![
            pin(4242, 1000, "GPU-a", 2 << 20, true, 12, "python3 train.py"),
            pin(7, 0, "-", 64 << 10, false, 86400, "ucx"),
        ];
        assert_eq!(pins, Ok(expected));
        assert_eq!(list(""), Ok(Vec::new()));
    }

    #[test]
    fn commands_keep_their_blanks_and_may_be_empty() {
        for (command, found) in [("a  b\tc 1 2", "a  b\tc 1 2"), ("yes WC 12 x", "yes WC 12 x"), ("", "")] {
            let pins = list(&format!("1 2 - 3 no - 4 {command}\n")).expect("a pin");
            assert_eq!(pins[0].command, found);
        }
    }

    #[test]
    fn columns_may_be_aligned() {
        let aligned = "   pid  uid gpu      bytes mapped type   age command\n\
                       \u{20}   42    0 GPU-1   131072 yes    cached   5 x y\n";
        let pins = parse(aligned).expect("a pin");
        assert_eq!((pins[0].bytes, pins[0].age), (128 << 10, 5));
        assert_eq!(pins[0].command, "x y");
    }

    #[test]
    fn other_headers_are_another_form() {
        for header in [
            "",
            "\n",
            "pid uid gpu bytes mapped type age command",
            "pid uid gpu bytes mapped type age\n",
            "pid uid bytes mapped type age command\n",
            "pid gpu uid bytes mapped type age command\n",
            "1 2 3 yes WC 4 x\n",
        ] {
            assert_eq!(parse(header), Err(1), "{header:?}");
            assert_eq!(parse(&format!("{header}1 2 3 yes WC 4 x\n")), Err(1));
        }
    }

    #[test]
    fn torn_lines_are_another_form() {
        let whole = "4242 1000 GPU-a 2097152 yes WC 12 python3\n";
        for end in 1..whole.len() {
            let torn = &whole[..end];
            assert_eq!(list(&format!("{whole}{torn}")), Err(3), "{torn:?}");
        }
        for end in 0.."4242 1000 GPU-a 2097152 yes WC 12 ".len() {
            let torn = &whole[..end];
            assert_eq!(list(&format!("{torn}\n{whole}")), Err(2), "{torn:?}");
        }
    }

    #[test]
    fn other_values_are_another_form() {
        for line in [
            "-1 2 - 3 yes WC 4 x\n",
            "1 root - 3 yes WC 4 x\n",
            "1 2 GPU 3 yes WC 4 x\n",
            "1 2 - 3K yes WC 4 x\n",
            "1 2 - 18446744073709551616 yes WC 4 x\n",
            "1 2 - 3 maybe WC 4 x\n",
            "1 2 - 3 yes UC 4 x\n",
            "1 2 - 3 yes WC 4s x\n",
            "\n",
        ] {
            assert_eq!(list(line), Err(2), "{line:?}");
        }
    }
}
