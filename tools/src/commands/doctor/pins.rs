//! The holders of BAR1, as the pins that gdrdrv made, by GPU, user and process.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use super::report::{Finding, bytes, count};
use crate::system::pins::{LIST, Pin, Unread};

/// Processes that are listed at most.
const MOST: usize = 10;

pub(super) fn sum<'a>(pins: impl IntoIterator<Item = &'a Pin>) -> u64 {
    pins.into_iter().fold(0, |sum, pin| sum.saturating_add(pin.bytes))
}

pub(super) fn findings(pins: &Result<Vec<Pin>, Unread>) -> Vec<Finding> {
    let why = match pins {
        Ok(pins) => return of_pins(pins),
        Err(Unread::Refused(error)) if error.kind() == ErrorKind::PermissionDenied => {
            format!("run as root to see who holds BAR1: only root may read {LIST}")
        }
        Err(Unread::Refused(error)) => format!("{LIST}: {error}"),
        Err(Unread::Line(number)) => format!("this doctor does not know the form of {LIST}, line {number}"),
    };
    vec![Finding::unknown("pinned", why)]
}

fn of_pins(pins: &[Pin]) -> Vec<Finding> {
    let mut users = BTreeMap::<_, u64>::new();
    let mut processes = BTreeMap::<_, Vec<&Pin>>::new();
    for pin in pins {
        let of_user = users.entry((&pin.gpu, pin.uid)).or_default();
        *of_user = of_user.saturating_add(pin.bytes);
        processes.entry((pin.pid, pin.uid, &pin.gpu)).or_default().push(pin);
    }
    let numbers: BTreeSet<_> = pins.iter().map(|pin| (pin.pid, pin.uid)).collect();
    let holders = count(numbers.len(), "process", "processes");
    let all =
        format!("{} by {holders}, {} mapped", bytes(sum(pins)), bytes(sum(pins.iter().filter(|pin| pin.is_mapped))));
    let mut findings = vec![Finding::ok("pinned", all)];
    for ((gpu, uid), sum) in users {
        findings.push(Finding::ok("BAR1 of", format!("{gpu}: {} of uid {uid}", bytes(sum))));
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    processes.sort_by_key(|pins| Reverse(sum(pins.iter().copied())));
    for pins in processes.iter().take(MOST) {
        findings.push(Finding::ok("process", describe(pins)));
    }
    if processes.len() > MOST {
        findings.push(Finding::ok("processes", format!("and {} more", processes.len() - MOST)));
    }
    findings
}

/// The pins of a process on a GPU.
fn describe(pins: &[&Pin]) -> String {
    // The process is named as when it made the oldest, because its threads can have names of their own.
    let Some(oldest) = pins.iter().max_by_key(|pin| pin.age) else { return String::new() };
    let Pin { pid, uid, gpu, age, command, .. } = oldest;
    let age = match age {
        0..120 => format!("{age} s"),
        120..7200 => format!("{} min", age / 60),
        7200..172_800 => format!("{} h", age / 3600),
        _ => format!("{} days", age / 86400),
    };
    let all = bytes(sum(pins.iter().copied()));
    let mapped = bytes(sum(pins.iter().copied().filter(|pin| pin.is_mapped)));
    let number = count(pins.len(), "pin", "pins");
    // Control characters could control the terminal.
    let command = command.replace(char::is_control, "\u{fffd}");
    format!("{pid} ({command}), uid {uid}, {gpu}: {number} of {all}, {mapped} mapped, the oldest {age}")
}
