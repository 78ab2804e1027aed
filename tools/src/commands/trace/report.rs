//! The report of a run, for each process and all in sum.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::PathBuf;

use gdrcopy_trace_tables::{Function, ticks};
use nix::errno::Errno;
use serde::Serialize;

use super::advice;
use super::recorded::{Rate, Recorded, get};
use super::sites::Known;
use super::summary::{Left, Summary};
use crate::libgdrapi::search::Maker;
use crate::output::svg::quantity;
use crate::output::table::Table;

#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    pub(crate) run: &'a Run,
    pub(crate) maker: &'static str,
    /// The answer to the first question, in a sentence.
    pub(crate) statement: String,
    pub(crate) processes: Vec<Process>,
    pub(crate) sum: Option<Summary>,
}

/// A process that looked up a function of libgdrapi.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u64,
    pub(crate) parent: u64,
    pub(crate) program: String,
    pub(crate) running: bool,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

/// A run, before anything is known about it.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) command: Vec<String>,
    pub(crate) pid: u32,
    /// The library to which calls are forwarded.
    pub(crate) library: PathBuf,
    #[serde(skip)]
    pub(crate) rate: Rate,
    /// When the program ended, if it has.
    #[serde(skip)]
    pub(crate) ended: Option<u64>,
    /// The program loaded the tracer.
    #[serde(skip)]
    pub(crate) loaded: bool,
    /// Processes that are missing, because the temporary directory was full.
    pub(crate) not_recorded: usize,
}

impl<'a> Report<'a> {
    pub(crate) fn of(run: &'a Run, recorded: &[Recorded], known: &mut Known) -> Report<'a> {
        let now = run.ended.unwrap_or_else(ticks);
        let mut summary = |processes: &[&Recorded], seconds, until_last_call| {
            let summary = Summary::of(processes, seconds, run.rate, known);
            let mut summary = Summary { until_last_call, ..summary };
            summary.advice = advice::of(&summary);
            summary
        };
        let processes: Vec<_> = recorded
            .iter()
            .enumerate()
            .map(|(i, one)| {
                let process = &one.tables.process;
                let pid = get(&process.pid);
                // An earlier program of the same process has ended by exec.
                let is_last = recorded[i + 1..].iter().all(|it| get(&it.tables.process.pid) != pid);
                let is_root = pid == u64::from(run.pid);
                let exists = match is_root {
                    true => run.ended.is_none(),
                    false => PathBuf::from(format!("/proc/{pid}")).exists(),
                };
                let end = get(&process.end);
                // One that has ended may still exist, as a zombie.
                let running = is_last && exists && (is_root || end == 0);
                let last = one.tables.threads.iter().map(|thread| get(&thread.last)).max().unwrap_or(0);
                let is_known = running || is_root && is_last;
                let until = if is_known { now } else { last.max(end) };
                let ticks = until.saturating_sub(get(&process.start));
                Process {
                    pid,
                    parent: get(&process.parent),
                    program: process.program.get(),
                    running,
                    summary: summary(&[one], run.rate.ns(ticks) / 1e9, !is_known && end == 0),
                }
            })
            .collect();
        let sum = (processes.len() > 1).then(|| {
            let seconds = processes.iter().map(|process| process.summary.seconds).sum();
            let until_last_call = processes.iter().any(|process| process.summary.until_last_call);
            summary(&recorded.iter().collect::<Vec<_>>(), seconds, until_last_call)
        });
        let maker = Maker::of(&run.library).describe();
        let mut report = Report { run, maker, statement: String::new(), processes, sum };
        report.statement = report.stated(recorded);
        report
    }

    /// All processes in sum; none if there is none.
    pub(crate) fn total(&self) -> Option<&Summary> {
        self.sum.as_ref().or_else(|| Some(&self.processes.first()?.summary))
    }

    fn stated(&self, recorded: &[Recorded]) -> String {
        let Run { library, loaded, not_recorded, .. } = self.run;
        let program = self.run.command.first().map_or("", |program| program);
        let Some(total) = self.total() else {
            return match (loaded, not_recorded) {
                (_, 1..) => {
                    format!("{program} could not be recorded: the temporary directory is full")
                }
                (true, _) => {
                    format!(
                        "{program} did not load libgdrapi, as no function of it was looked up, or its process could \
                         not write to the temporary directory"
                    )
                }
                (false, _) => format!(
                    "{program} cannot be traced: its process did not load what LD_PRELOAD names, as programs that are \
                     statically linked, set-user-ID, or of another arch do not"
                ),
            };
        };
        let versions = recorded.iter().map(|it| get(&it.tables.process.version));
        let version = versions.max().filter(|&version| version != 0);
        let version = version.map_or("version unknown".into(), |it| format!("{}.{}", it >> 32, it & 0xffff_ffff));
        let described = format!("libgdrapi {} ({}, {version})", library.display(), self.maker);
        if recorded.iter().any(|it| get(&it.tables.process.unloadable) == 1) {
            return format!("{program} found no libgdrapi: {} cannot be loaded", library.display());
        }
        let (copies, bytes) = total.copied();
        match total.calls_of(Function::Open) {
            None => format!("{program} loaded {described}, but never opened it"),
            Some(open) if open.failed == open.count => {
                let errno = Errno::from_raw(open.errno.unwrap_or(0));
                format!("{program} loaded {described}, but gdr_open failed: {errno}")
            }
            Some(_) => format!(
                "{program} used {described}: {}, {}, {}, {bytes} bytes",
                counted(total.pins, "pin"),
                counted(total.maps, "map"),
                if copies == 1 { "1 copy".into() } else { format!("{copies} copies") },
            ),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("gdrcopy trace: {}\n", self.statement);
        for process in &self.processes {
            let Process { pid, program, running, summary, .. } = process;
            let running = if *running { ", still running" } else { "" };
            let _ = writeln!(text, "\nprocess {pid} ({program}{running})");
            summary.write(&mut text);
        }
        if let Some(sum) = &self.sum {
            let _ = writeln!(text, "\n{} processes in sum", self.processes.len());
            sum.write(&mut text);
        }
        // The statement is about one of them if there are no others.
        let more = self.run.not_recorded.saturating_sub(usize::from(self.total().is_none()));
        if more > 0 {
            let _ = writeln!(
                text,
                "\n{} more could not be recorded, because the temporary directory is full",
                counted(more as u64, "process")
            );
        }
        if self.total().is_some_and(|total| !total.copies.is_empty()) {
            text += "\nA write returns before all of its data has left the CPU; a read has its data.\n";
        }
        if self.total().is_some_and(|total| total.maps > 0) {
            text += "\nLoads and stores of the program itself to a mapping are not seen.\n";
        }
        text
    }
}

fn counted(count: u64, name: &str) -> String {
    let ending = if name.ends_with('s') { "es" } else { "s" };
    format!("{count} {name}{}", if count == 1 { "" } else { ending })
}

/// Nanoseconds with a unit.
fn time(ns: f64) -> String {
    if ns > 0.0 { quantity(ns / 1e9, "s") } else { "0 s".into() }
}

/// Bytes with a unit.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    let decimals = usize::from(number.fract() != 0.0);
    format!("{number:.decimals$} {}", UNITS[power])
}

impl Summary {
    fn write(&self, text: &mut String) {
        let inside = match self.until_last_call {
            true => format!(" until the last call, {:.3} s", self.seconds_inside),
            false => format!(", {:.1} % of it", 100.0 * self.seconds_inside / self.seconds.max(1e-9)),
        };
        let _ = writeln!(
            text,
            "{:.3} s{inside} inside libgdrapi{}\n\n{}",
            self.seconds,
            if self.threads > 1 { format!(", in sum of {} threads", self.threads) } else { String::new() },
            self.call_table()
        );
        if !self.mapping_types.is_empty() {
            let types = self.mapping_types.iter().map(|(name, count)| format!("{count} {name}"));
            let _ = writeln!(text, "maps: {}\n", types.collect::<Vec<_>>().join(", "));
        }
        if !self.copies.is_empty() {
            let _ = writeln!(text, "{}", self.copy_table());
        }
        if self.failed_copies > 0 {
            let _ = writeln!(text, "copies that failed: {}\n", self.failed_copies);
        }
        if !self.most_used.is_empty() {
            let _ = writeln!(text, "{}", self.pin_table());
        }
        if self.pins_left_out > 0 {
            let _ = writeln!(text, "pins that are not in the table: {}\n", self.pins_left_out);
        }
        let Left { pins, pinned_bytes, mappings, mapped_bytes, incomplete } = self.left;
        let _ = writeln!(
            text,
            "left at the end: {}{} ({}), {} ({})",
            if incomplete { "at least " } else { "" },
            counted(pins, "pin"),
            amount(pinned_bytes),
            counted(mappings, "mapping"),
            amount(mapped_bytes)
        );
        for misuse in &self.misuse {
            let _ = writeln!(text, "misuse: {} ({}): {}", misuse.caller, counted(misuse.count, "time"), misuse.what);
        }
        if self.misuse_left_out > 0 {
            let _ = writeln!(text, "misuse at other places: {}", counted(self.misuse_left_out, "time"));
        }
        for advice in &self.advice {
            let _ = writeln!(text, "advice: {advice}");
        }
    }

    fn call_table(&self) -> Table {
        let mut table = Table::new(["CALL", "COUNT", "FAILED", "MEAN", "BYTES", "SMALLEST", "LARGEST"]);
        for calls in &self.calls {
            let bytes = |bytes: u64| if calls.bytes > 0 { amount(bytes) } else { String::new() };
            let failed = match calls.errno {
                Some(errno) => format!("{} ({:?})", calls.failed, Errno::from_raw(errno)),
                None => calls.failed.to_string(),
            };
            table.push(vec![
                calls.function.into(),
                calls.count.to_string(),
                failed,
                time(calls.mean_ns),
                bytes(calls.bytes),
                bytes(calls.smallest_bytes),
                bytes(calls.largest_bytes),
            ]);
        }
        table
    }

    pub(crate) fn copy_table(&self) -> Table {
        let mut table = Table::new(["COPIES", "COUNT", "BYTES", "P50", "P99", "BANDWIDTH"]);
        for copies in &self.copies {
            let direction = copies.direction.name();
            table.push(vec![
                format!("{direction} from {}", amount(copies.size_bytes)),
                copies.count.to_string(),
                amount(copies.bytes),
                time(copies.p50_ns),
                time(copies.p99_ns),
                if copies.bytes > 0 { quantity(copies.bytes_per_second, "B/s") } else { String::new() },
            ]);
        }
        table
    }

    fn pin_table(&self) -> Table {
        let mut table =
            Table::new(["PINNED BY", "ADDRESS", "SIZE", "PINS", "MAPS", "TYPE", "WRITES", "WRITTEN", "READS", "READ"]);
        for pin in &self.most_used {
            table.push(vec![
                pin.pinned_by.clone(),
                format!("{:#x}", pin.device_address),
                amount(pin.size_bytes),
                pin.pins.to_string(),
                pin.maps.to_string(),
                pin.mapping_type.into(),
                pin.writes.to_string(),
                amount(pin.written_bytes),
                pin.reads.to_string(),
                amount(pin.read_bytes),
            ]);
        }
        table
    }
}
