//! Calls that fail or return wrong results on purpose, as in `PIN_BUFFER_V2:ENOMEM@3,GET_INFO_V2:MAPPING_TYPE=4@1`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::abi::{Command, Field};
use crate::errno::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Fail(Errno),
    /// The call succeeds, but this field of its result gets this value.
    Answer(&'static Field, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    call: String,
    effect: Effect,
    /// Which calls of the function or command `call` have this effect: 1 is the first call.
    calls: RangeInclusive<u64>,
}

/// The faults to inject (see the help of `--fault`), and how often each call was made so far. `made` has the names of
/// the calls in capital letters.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    made: BTreeMap<String, u64>,
}

impl Faults {
    /// Counts a call of this name and returns the error to fail it with, if any.
    pub fn take(&mut self, call: &str) -> Option<Errno> {
        self.take_answers(call).err()
    }

    /// Counts a driver command of this name. Returns the fields to change in its result, or the error to fail it with.
    pub fn take_answers(&mut self, call: &str) -> Result<Vec<(&'static Field, u64)>, Errno> {
        let mut answers = Vec::new();
        if self.list.is_empty() {
            return Ok(answers);
        }
        let call = call.to_ascii_uppercase();
        let number = self.made.entry(call.clone()).or_default();
        *number += 1;
        for fault in &self.list {
            if fault.call != call || !fault.calls.contains(number) {
                continue;
            }
            match fault.effect {
                Effect::Fail(errno) => return Err(errno),
                Effect::Answer(field, value) => answers.push((field, value)),
            }
        }
        Ok(answers)
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Faults { list: Vec::new(), made: BTreeMap::new() };
        for entry in text.split(',').map(str::trim) {
            if entry.is_empty() {
                continue;
            }
            faults.list.push(parse_entry(entry).map_err(|wrong| {
                format!("fault \"{entry}\": {wrong} (NAME:ERROR[@N[+]] or COMMAND:FIELD=VALUE[@N[+]])")
            })?);
        }
        Ok(faults)
    }
}

fn parse_entry(entry: &str) -> Result<Fault, &'static str> {
    let (call, rest) = entry.split_once(':').ok_or("no error")?;
    if !is_call(call) {
        return Err("no such call");
    }
    let (effect, nth) = rest.split_once('@').unwrap_or((rest, "1+"));
    let first = nth.strip_suffix('+').unwrap_or(nth).parse().unwrap_or(0);
    if first == 0 {
        return Err("N is from 1");
    }
    let calls = first..=if nth.ends_with('+') { u64::MAX } else { first };
    let effect = match effect.split_once('=') {
        None => Effect::Fail(effect.parse().map_err(|_| "unknown error")?),
        Some((name, value)) => Effect::Answer(
            find_field(call, name).ok_or("no such field of a command")?,
            value.parse().map_err(|_| "VALUE is a number")?,
        ),
    };
    Ok(Fault { call: call.to_ascii_uppercase(), effect, calls })
}

/// Returns whether a call may have this name, in any case. CUDA's functions are recognized by their prefix only.
fn is_call(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_system_call = ["OPEN", "MMAP", "MUNMAP", "MMAP_FIXED", "CLOSE"].contains(&&*name);
    is_system_call || name.starts_with("CU") || find_command(&name).is_some()
}

fn find_command(name: &str) -> Option<&'static Command> {
    Command::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(name))
}

fn find_field(command: &str, name: &str) -> Option<&'static Field> {
    find_command(command)?.fields().iter().find(|field| field.name.eq_ignore_ascii_case(name))
}
