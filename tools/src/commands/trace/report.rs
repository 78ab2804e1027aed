//! The report of a traced run, about each process and about all together, as JSON and as text.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::slice;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::functions;
use super::recorded::{self, COPIES, PARTS, Recorded, THREADS, TIMES, read_all};
use super::summary;
use crate::libgdrapi::search::Maker;
use crate::measure::session::EMULATED;
use crate::output::table::{Columns, Table, cell};

pub(crate) struct Run {
    pub(crate) command: Vec<String>,
    pub(crate) pid: u32,
    /// True if the processes that the program started are traced too.
    pub(crate) children: bool,
    /// The number of the signal that ended the program.
    pub(crate) signal: Option<i32>,
    pub(crate) ns_per_tick: f64,
    /// The libgdrapi to which the preloaded object forwards the program's calls.
    pub(crate) library: PathBuf,
    /// The functions of the library that are not traced.
    pub(crate) not_traced: Vec<String>,
    /// The directory with one file of counts for each traced process.
    pub(crate) directory: PathBuf,
}

impl Run {
    pub(crate) fn report(&self) -> io::Result<Value> {
        let only = if self.children { None } else { Some(self.pid) };
        let (recorded, not_recorded) = read_all(&self.directory, only)?;
        let mut sum = summary::of(&recorded, self.ns_per_tick);
        let mut seconds = 0.0;
        let mut processes = Vec::new();
        for (number, one) in recorded.iter().enumerate() {
            let process = self.process(one, &recorded[number + 1..]);
            seconds += process["seconds"].as_f64().unwrap_or(0.0);
            processes.push(process);
        }
        sum["seconds"] = seconds.into();
        let maker = Maker::of(&self.library).describe();
        Ok(json!({
            "statement": self.statement(&recorded, not_recorded, &sum, maker),
            "command": self.command,
            "pid": self.pid,
            "library": self.library,
            "maker": maker,
            "not_traced": self.not_traced,
            "not_recorded": not_recorded,
            "processes": processes,
            "sum": sum,
        }))
    }

    /// Returns the report of one process. `later` has the processes that began after it. If one of them has the same
    /// PID, this process has called exec, and `self.signal` ended the later program. So this report gets no signal.
    fn process(&self, one: &Recorded, later: &[Recorded]) -> Value {
        let [pid, parent, start, ..] = one.process();
        let mut signal = Value::Null;
        if let Some(number) = self.signal
            && pid == u64::from(self.pid)
            && later.iter().all(|other| other.process()[0] != pid)
        {
            signal = match Signal::try_from(number) {
                Ok(signal) => signal.to_string().into(),
                Err(_) => number.to_string().into(),
            };
        }
        let mut last_call = start;
        let mut inside = Vec::new();
        for part in 0..PARTS {
            let [_busy, call, last] = one.record(THREADS, part);
            last_call = last_call.max(last);
            if call != 0 {
                let caller = one.name(call >> 8, None);
                inside.push(json!({ "function": functions::name((call & 0xff).wrapping_sub(1)), "caller": caller }));
            }
        }
        let mut process = summary::of(slice::from_ref(one), self.ns_per_tick);
        process["pid"] = pid.into();
        process["parent"] = parent.into();
        process["program"] = one.program().into();
        process["emulated"] = one.is_emulated().into();
        process["signal"] = signal;
        process["inside"] = inside.into();
        process["seconds"] = (last_call.saturating_sub(start) as f64 * self.ns_per_tick / 1e9).into();
        process
    }

    /// Returns a sentence that says whether the program used libgdrapi.
    fn statement(&self, recorded: &[Recorded], not_recorded: usize, sum: &Value, maker: &str) -> String {
        let program = &self.command[0];
        let library = self.library.display();
        if recorded.is_empty() {
            let why = if not_recorded > 0 {
                "could not be recorded: the temporary directory is full, or files have a limit"
            } else if self.directory.join(format!("{}-0.0", self.pid)).exists() {
                "called no function of libgdrapi that can be traced: it needs none, opened one by its full path, or could \
                 not write to the temporary directory"
            } else {
                "cannot be traced: its process did not load what LD_PRELOAD names, as programs that are \
                 statically linked, set-user-ID, or of another arch do not"
            };
            return format!("{program} {why}");
        }
        let version = match recorded.iter().map(|process| process.process()[4]).max() {
            Some(u64::MAX) => return format!("{program} found no libgdrapi: {library} cannot be loaded"),
            None | Some(0) => "version unknown".to_owned(),
            Some(version) => format!("{}.{}", version >> 32, version as u32),
        };
        let described = format!("libgdrapi {library} ({maker}, {version})");
        let open = &sum["calls"][0];
        if open["function"] != "gdr_open" {
            return format!("{program} loaded {described}, but never opened it");
        }
        if open["failed"] == open["count"] {
            return format!("{program} loaded {described}, but gdr_open failed: {}", cell(open, "errno"));
        }
        let [bytes, _, times @ ..]: [u64; 2 + TIMES] = recorded::sum(recorded, COPIES, 0..COPIES.records);
        let copies = summary::total(&times);
        let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        let pins = counted(&sum["pins"], "pin");
        let maps = counted(&sum["maps"], "map");
        format!("{program} used {described}: {pins}, {maps}, {copies}, {bytes} bytes")
    }
}

pub(crate) fn text(report: &Value) -> String {
    let mut text = format!("gdrcopy trace: {}\n", cell(report, "statement"));
    let processes = rows(&report["processes"]);
    if processes.iter().any(|process| process["emulated"] == true) {
        let _ = writeln!(text, "{EMULATED}");
    }
    for function in rows(&report["not_traced"]) {
        let _ =
            writeln!(text, "not seen: calls of {}, which this libgdrapi also has", function.as_str().unwrap_or("?"));
    }
    for process in processes {
        let _ = write!(text, "\nprocess {} ({})", process["pid"], cell(process, "program"));
        if let Value::String(signal) = &process["signal"] {
            let _ = write!(text, ", ended by {signal}");
        }
        text += "\n";
        for call in rows(&process["inside"]) {
            let _ = writeln!(text, "not returned: {}, called by {}", cell(call, "function"), cell(call, "caller"));
        }
        write_summary(process, &mut text);
    }
    if processes.len() > 1 {
        let _ = writeln!(text, "\n{} processes in sum", processes.len());
        write_summary(&report["sum"], &mut text);
    }
    if report["not_recorded"] != 0 && !processes.is_empty() {
        let _ = writeln!(text, "\nprocesses that could not be recorded: {}", report["not_recorded"]);
    }
    if report["sum"]["copies"] != json!([]) {
        text += "\nA write returns before all of its data has left the CPU; a read has its data.\n";
    }
    if report["sum"]["maps"] != 0 {
        text += "\nLoads and stores of the program itself to a mapping are not seen.\n";
    }
    text
}

const CALL_COLUMNS: &Columns =
    &[("CALL", "function"), ("COUNT", "count"), ("FAILED", "failed"), ("LAST ERROR", "errno"), ("MEAN", "mean_ns")];
const COPY_COLUMNS: &Columns = &[
    ("COPIES", "direction"),
    ("FROM SIZE", "size_bytes"),
    ("COUNT", "count"),
    ("BYTES", "bytes"),
    ("P50", "p50_ns"),
    ("P99", "p99_ns"),
    ("BANDWIDTH", "bytes_per_second"),
];
const PIN_COLUMNS: &Columns = &[
    ("PINNED BY", "pinned_by"),
    ("PINS", "pins"),
    ("TYPE", "mapping_type"),
    ("LEFT", "left_pins"),
    ("BYTES", "left_bytes"),
];

fn write_summary(summary: &Value, text: &mut String) {
    let seconds = summary["seconds"].as_f64().unwrap_or(0.0);
    let inside = summary["seconds_inside"].as_f64().unwrap_or(0.0);
    let share = 100.0 * inside / seconds.max(1e-9);
    let threads = counted(&summary["threads"], "thread");
    let _ =
        writeln!(text, "{seconds:.3} s from first to last call, {share:.1} % inside libgdrapi, in sum of {threads}\n");
    for (field, columns) in [("calls", CALL_COLUMNS), ("copies", COPY_COLUMNS), ("pinned", PIN_COLUMNS)] {
        if !rows(&summary[field]).is_empty() {
            let _ = writeln!(text, "{}", Table::of(rows(&summary[field]), columns));
        }
    }
    for (name, field) in [
        ("copies that failed", "failed_copies"),
        ("pins by other code", "pins_left_out"),
        ("misuse by other code", "misuse_left_out"),
    ] {
        if summary[field] != 0 {
            let _ = writeln!(text, "{name}: {}", summary[field]);
        }
    }
    let left = &summary["left"];
    let _ = writeln!(
        text,
        "left at the end: {}{} ({}), {} ({})",
        if left["incomplete"] == true { "at least " } else { "" },
        counted(&left["pins"], "pin"),
        cell(left, "pinned_bytes"),
        counted(&left["mappings"], "mapping"),
        cell(left, "mapped_bytes")
    );
    for misuse in rows(&summary["misuse"]) {
        let count = counted(&misuse["count"], "time");
        let _ = writeln!(text, "misuse: {}, {count}:\n  {}", cell(misuse, "caller"), cell(misuse, "what"));
    }
}

fn rows(value: &Value) -> &[Value] {
    match value.as_array() {
        Some(rows) => rows,
        None => &[],
    }
}

fn counted(count: &Value, name: &str) -> String {
    let ending = if *count == 1 { "" } else { "s" };
    format!("{count} {name}{ending}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The recorded counts can have any values, because they are in memory that the traced program can overwrite.
    #[test]
    fn any_record_gives_a_report() {
        let directory = tempfile::tempdir().unwrap();
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random
        };
        for round in 0..4 {
            let words = (0..recorded::WORDS).map(|_| match round {
                0 => u64::MAX,
                1 => u64::MAX / 2 + 1,
                _ => next() >> (next() % 64),
            });
            let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
            fs::write(directory.path().join("1-1.0"), bytes).unwrap();
            let run = Run {
                command: vec!["program".to_owned()],
                pid: 1,
                children: true,
                signal: Some(11),
                ns_per_tick: 0.5,
                library: PathBuf::new(),
                not_traced: Vec::new(),
                directory: directory.path().to_owned(),
            };
            let report = run.report().unwrap();
            assert_eq!(report["processes"].as_array().unwrap().len(), 1);
            assert!(text(&report).contains("process "));
        }
    }
}
