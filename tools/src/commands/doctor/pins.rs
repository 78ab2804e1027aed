//! The holders of BAR1, as the pins that gdrdrv made, by GPU, user and process.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use super::report::{Finding, bytes, count};
use crate::system::pins::{LIST, Pin, Unread};

/// Processes that are listed at most.
const MOST: usize = 10;

/// The pins of a process on a GPU, at least one.
fn describe(pins: &[&Pin]) -> Option<String> {
    // Names the process, because its threads can have names of their own.
    let Pin { pid, uid, gpu, age: oldest, command, .. } = pins.iter().max_by_key(|pin| pin.age)?;
    Some(format!(
        "{pid} ({}), uid {uid}, {gpu}: {} of {}, {} mapped, the oldest {}",
        // They could control the terminal.
        command.replace(char::is_control, "\u{fffd}"),
        count(pins.len(), "pin", "pins"),
        bytes(sum(pins.iter().copied())),
        bytes(sum(pins.iter().copied().filter(|pin| pin.is_mapped))),
        age(*oldest)
    ))
}

pub(super) fn sum<'a>(pins: impl IntoIterator<Item = &'a Pin>) -> u64 {
    let bytes = pins.into_iter().map(|pin| pin.bytes);
    bytes.fold(0, u64::saturating_add)
}

pub(super) fn findings(pins: &Result<Vec<Pin>, Unread>) -> Vec<Finding> {
    let why = match pins {
        Ok(pins) => return of_pins(pins),
        Err(Unread::Refused(error)) if error.kind() == ErrorKind::PermissionDenied => {
            format!("run as root to see who holds BAR1: only root may read {LIST}")
        }
        Err(Unread::Refused(error)) => format!("{LIST}: {error}"),
        Err(Unread::Line(number)) => {
            format!("this doctor does not know the form of {LIST}, line {number}")
        }
    };
    vec![Finding::unknown("pinned", why)]
}

fn of_pins(pins: &[Pin]) -> Vec<Finding> {
    let processes = by_process(pins);
    let numbers: BTreeSet<_> = pins.iter().map(|pin| (pin.pid, pin.uid)).collect();
    let all = format!(
        "{} by {}, {} mapped",
        bytes(sum(pins)),
        count(numbers.len(), "process", "processes"),
        bytes(sum(pins.iter().filter(|pin| pin.is_mapped)))
    );
    let rows = processes.iter().take(MOST).filter_map(|pins| describe(pins));
    let mut findings = vec![Finding::ok("pinned", all)];
    for row in by_gpu(pins) {
        findings.push(Finding::ok("BAR1 of", row));
    }
    findings.extend(rows.map(|row| Finding::ok("process", row)));
    if processes.len() > MOST {
        findings.push(Finding::ok("processes", format!("and {} more", processes.len() - MOST)));
    }
    findings
}

/// A line for each GPU, with the bytes of each user.
fn by_gpu(pins: &[Pin]) -> Vec<String> {
    let mut gpus = BTreeMap::<_, BTreeMap<_, u64>>::new();
    for pin in pins {
        let of_user = gpus.entry(&pin.gpu).or_default().entry(pin.uid).or_default();
        *of_user = of_user.saturating_add(pin.bytes);
    }
    let mut lines = Vec::new();
    for (gpu, users) in gpus {
        let users: Vec<_> = users.iter().map(|(uid, sum)| format!("{} of uid {uid}", bytes(*sum))).collect();
        lines.push(format!("{gpu}: {}", users.join(", ")));
    }
    lines
}

/// The pins of each process on each GPU, those with the most bytes first.
fn by_process(pins: &[Pin]) -> Vec<Vec<&Pin>> {
    let mut processes = BTreeMap::<_, Vec<&Pin>>::new();
    for pin in pins {
        processes.entry((pin.pid, pin.uid, &pin.gpu)).or_default().push(pin);
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    processes.sort_by_key(|pins| Reverse(sum(pins.iter().copied())));
    processes
}

/// Seconds in a unit that fits.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::report::Verdict;
    use super::*;

    fn pin(pid: u32, bytes: u64, is_mapped: bool, age: u64, command: &str) -> Pin {
        Pin { pid, uid: 1000, gpu: "GPU-a".into(), bytes, is_mapped, age, command: command.into() }
    }

    fn lines(pins: Vec<Pin>) -> Vec<(&'static str, String)> {
        let findings = findings(&Ok(pins)).into_iter();
        findings
            .map(|finding| {
                assert_eq!(finding.verdict, Verdict::Ok);
                (finding.subject, finding.value)
            })
            .collect()
    }

    #[test]
    fn pins_are_summed_by_process_and_the_largest_comes_first() {
        let pins = vec![
            pin(7, 64 << 10, false, 5, "ucx"),
            pin(42, 2 << 20, true, 12, "worker"),
            pin(42, 256 << 10, false, 7300, "python3 train.py"),
            Pin { gpu: "GPU-b".into(), ..pin(42, 64 << 10, true, 3, "worker") },
            Pin { uid: 0, ..pin(8, 64 << 10, false, 4, "root") },
        ];
        let found = lines(pins);
        let expected = [
            ("pinned", "2.4 MiB by 3 processes, 2 MiB mapped"),
            ("BAR1 of", "GPU-a: 64 KiB of uid 0, 2.3 MiB of uid 1000"),
            ("BAR1 of", "GPU-b: 64 KiB of uid 1000"),
            ("process", "42 (python3 train.py), uid 1000, GPU-a: 2 pins of 2.2 MiB, 2 MiB mapped, the oldest 2 h"),
            ("process", "7 (ucx), uid 1000, GPU-a: 1 pin of 64 KiB, 0 B mapped, the oldest 5 s"),
            ("process", "8 (root), uid 0, GPU-a: 1 pin of 64 KiB, 0 B mapped, the oldest 4 s"),
            ("process", "42 (worker), uid 1000, GPU-b: 1 pin of 64 KiB, 64 KiB mapped, the oldest 3 s"),
        ];
        assert_eq!(found, expected.map(|(subject, row)| (subject, row.into())));
        assert_eq!(lines(Vec::new()), [("pinned", "0 B by no processes, 0 B mapped".into())]);
    }

    #[test]
    fn ten_processes_are_listed() {
        for (processes, last) in [(10, None), (11, Some("and 1 more")), (14, Some("and 4 more"))] {
            let pins = (0..processes).map(|pid| pin(pid, 1 << pid, true, 0, "x"));
            let found = lines(pins.collect());
            let rows = found.iter().filter(|(subject, _)| *subject == "process");
            assert_eq!(rows.count(), 10);
            assert!(found[2].1.starts_with(&format!("{} (x)", processes - 1)));
            let more = found.iter().find(|(subject, _)| *subject == "processes");
            assert_eq!(more.map(|(_, value)| &**value), last);
        }
    }

    #[test]
    fn sum_of_any_numbers_does_not_overflow() {
        let pins = vec![pin(1, u64::MAX, true, u64::MAX, "x"); 2];
        assert_eq!(sum(&pins), u64::MAX);
        assert_eq!(lines(pins).len(), 3);
    }

    #[test]
    fn commands_cannot_control_the_terminal() {
        let found = lines(vec![pin(1, 1, true, 0, "\x1b[2Jx\ny\u{9b}")]);
        assert!(!found[2].1.contains(char::is_control), "{found:?}");
    }

    #[test]
    fn list_that_is_not_read_says_why() {
        let value = |unread| {
            let found = findings(&Err(unread));
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].verdict, Verdict::Unknown);
            found[0].value.clone()
        };
        let refused = io::Error::from_raw_os_error(libc::EACCES);
        assert!(value(Unread::Refused(refused)).starts_with("run as root to see who holds BAR1"));
        let failed = io::Error::from_raw_os_error(libc::EIO);
        assert!(!value(Unread::Refused(failed)).contains("root"));
        assert!(value(Unread::Line(1)).contains("does not know the form"));
    }

    #[test]
    fn age_is_in_a_unit_that_fits() {
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_799, "47 h"), (172_800, "2 days")]
        {
            assert_eq!(age(seconds), text);
        }
    }
}
