//! Calls as events of the trace event format, which Perfetto and chrome://tracing show.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use gdrcopy_trace_tables::{FUNCTIONS, Function, Process, Ring};
use serde_json::json;

use super::recorded::{Rate, Recorded, get};

/// Writes all events to a file, and returns how many there are, and how many were left out.
pub(crate) fn write(recorded: &[Recorded], rate: Rate, file: &Path) -> Result<(usize, u64)> {
    let written = File::create(file).and_then(|file| write_to(BufWriter::new(file), recorded, rate));
    written.with_context(|| format!("writing {}", file.display()))
}

/// One event after the other, as all at once need much memory.
fn write_to(mut file: impl Write, recorded: &[Recorded], rate: Rate) -> io::Result<(usize, u64)> {
    let origin = recorded.iter().map(|it| get(&it.tables.process.start)).min().unwrap_or(0);
    let (mut calls, mut left_out) = (0, 0);
    write!(file, r#"{{"displayTimeUnit":"ns","traceEvents":["#)?;
    for (i, process) in recorded.iter().enumerate() {
        let Process { pid, start: began, program, .. } = &process.tables.process;
        let (pid, began) = (get(pid), get(began));
        let name = json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": program.get() } });
        write!(file, "{}{name}", if i == 0 { "" } else { "," })?;
        let mut steps = of_ring(&process.tables.steps);
        left_out += steps.1;
        if let Some(copies) = &process.copies {
            let copies = of_ring(copies);
            left_out += copies.1;
            steps.0.extend(copies.0);
        }
        steps.0.sort_by_key(|step| step.start);
        calls += steps.0.len();
        for step in &steps.0 {
            let microseconds = |ticks| rate.ns(ticks) / 1000.0;
            let start = microseconds(step.start.saturating_sub(origin));
            let length = microseconds(step.ticks);
            let call = json!({
                "ph": "X", "name": FUNCTIONS[step.function as usize], "cat": "libgdrapi", "pid": pid,
                "tid": step.thread, "ts": start, "dur": length, "args": { "bytes": step.size },
            });
            write!(file, ",{call}")?;
            if let Some(phase) = step.flow() {
                // The program that exec starts has the same pid.
                let flow = json!({
                    "ph": phase, "bp": "e", "name": "pin", "cat": "pin", "pid": pid, "tid": step.thread,
                    "id": format!("{pid}.{began:x}.{}", step.pin), "ts": start + length / 2.0,
                });
                write!(file, ",{flow}")?;
            }
        }
    }
    let other = json!({ "calls": calls, "earlier calls left out": left_out });
    write!(file, r#"],"otherData":{other}}}"#)?;
    file.flush()?;
    Ok((calls, left_out))
}

struct Step {
    start: u64,
    ticks: u64,
    size: u64,
    function: u8,
    thread: u8,
    /// Which pin of the process; 0 for none.
    pin: u32,
}

impl Step {
    /// Its part in the flow of a pin, from pinning (s) to unpinning (f).
    fn flow(&self) -> Option<&'static str> {
        let is = |functions: &[Function]| functions.iter().any(|&it| it as u8 == self.function);
        match self.pin {
            0 => None,
            _ if is(&[Function::PinBuffer, Function::PinBufferV2]) => Some("s"),
            _ if is(&[Function::UnpinBuffer]) => Some("f"),
            _ => Some("t"),
        }
    }
}

/// The complete events, and how many older ones they have replaced.
fn of_ring<const N: usize>(ring: &Ring<N>) -> (Vec<Step>, u64) {
    let written = ring.events.iter().filter(|event| get(&event.start) != 0);
    let steps: Vec<_> = written
        .map(|event| {
            let what = get(&event.what);
            Step {
                start: get(&event.start),
                ticks: get(&event.ticks),
                size: get(&event.size),
                function: (what as u8).min(FUNCTIONS.len() as u8 - 1),
                thread: (what >> 8) as u8,
                pin: (what >> 32) as u32,
            }
        })
        .collect();
    (steps, get(&ring.next).saturating_sub(N as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_lead_from_the_pin_to_its_end() {
        let flow = |function: Function, pin| {
            let function = function as u8;
            Step { start: 1, ticks: 1, size: 0, function, thread: 0, pin }.flow()
        };
        let of_pin = [Function::PinBuffer, Function::Map, Function::CopyToMapping, Function::UnpinBuffer];
        assert_eq!(of_pin.map(|function| flow(function, 1)), ["s", "t", "t", "f"].map(Some));
        assert_eq!(flow(Function::Open, 0), None);
    }
}
