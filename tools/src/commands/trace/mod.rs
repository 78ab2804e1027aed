//! `gdrcopy trace`: how a program uses libgdrapi.
//!
//! ```text
//! mod.rs            options; runs the program, then writes what was asked for
//!   program.rs      starts it with the tracer (tools/trace/), and waits
//!   report.rs       statement and tables      plot.rs: charts      events.rs: trace events
//!     advice.rs     what would be faster
//!       summary.rs  numbers of one process, or of several in sum
//!         recorded.rs the tracer's files      sites.rs: names of places in the code
//! ```
#![forbid(unsafe_code)]

mod advice;
mod events;
mod plot;
mod program;
mod recorded;
mod report;
mod sites;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use console::Term;
use nix::unistd::{AccessFlags, access};

use crate::libgdrapi::search;
use program::{Program, Settings};
use recorded::Rate;
use report::{Report, Run};
use sites::Known;

/// The options of `gdrcopy trace`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints to stderr when the program ends: whether it used libgdrapi, its calls, copies by direction and size, the most used \
pins with the code that pinned them, misuse, and advice. The program needs no changes: linked or opened by dlopen, \
libgdrapi.so and libgdrapi.so.2 are traced.

Loads and stores of the program itself to a mapping are not seen, nor are programs that are statically linked, \
set-user-ID or of another arch, nor a libgdrapi that dlmopen or a full path opens. A path that is built into a program \
(RUNPATH) is unknown here: name its library with --lib.

In names of files, %p stands for the program's process id, and %h for the host.

Examples:
  gdrcopy trace -- ./program arguments
  gdrcopy trace --live --chrome trace.%p.json -- python3 train.py
  mpirun -n 8 gdrcopy trace --json trace.%h.%p.json -- ./program

Exit status: that of the program, 128 plus the signal's number if a signal ended it, 1 if it cannot be traced.")]
pub(crate) struct Options {
    /// Print what was counted so far once a second
    #[arg(long)]
    live: bool,

    /// Write all numbers as JSON to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the latest calls as trace events, for Perfetto, to a file
    #[arg(long, value_name = "FILE")]
    chrome: Option<PathBuf>,

    /// Draw number and time of copies over size to an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Also trace the processes that the program starts
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    children: bool,

    /// With --chrome, leave out copies that take less time
    #[arg(long, value_name = "NS", default_value_t = 0)]
    min_time: u64,

    /// Give the program this libgdrapi instead of the one that the loader finds
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,

    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the tool.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for file in [&options.json, &options.chrome, &options.plot].into_iter().flatten() {
        // Before the program runs, which may take long.
        let directory = file.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
        access(directory, AccessFlags::W_OK).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let directory = tempfile::Builder::new().prefix("gdrcopy-trace-").tempdir()?;
    let library = library(options.lib.as_deref())?;
    let rate = Rate::measure();
    let settings = Settings {
        children: options.children,
        events: options.chrome.is_some(),
        min_ticks: rate.ticks(options.min_time),
        directory: directory.path(),
        library: &library,
    };
    let program = Program::start(&options.program, &settings)?;
    let pid = program.pid();
    let mut run = Run {
        command: options.program.iter().map(|it| it.to_string_lossy().into_owned()).collect(),
        pid,
        library: library.clone(),
        rate,
        ended: false,
        loaded: (false, false),
    };
    let mut known = Known::new();
    let status = program.wait(|| {
        if options.live {
            show(&run, directory.path(), &mut known);
        }
    })?;
    (run.ended, run.loaded) = (true, recorded::was_loaded(directory.path(), pid));
    let recorded = recorded::read_all(directory.path())?;
    let report = Report::of(&run, &recorded, &mut known);
    eprint!("{}", report.text());
    if let Some(file) = &options.json {
        let file = named(file, pid);
        let json = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(&file, json).with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(file) = &options.chrome {
        let (calls, left_out) = events::write(&recorded, rate, &named(file, pid))?;
        eprintln!("gdrcopy trace: {calls} calls are events; {left_out} earlier ones were left out");
    }
    if let (Some(file), Some((1.., _))) = (&options.plot, report.total().map(|it| it.copied())) {
        plot::draw(&report, &named(file, pid))?;
    } else if options.plot.is_some() {
        eprintln!("gdrcopy trace: no chart: nothing was copied");
    }
    let signal = status.signal().map(|signal| 128 + signal);
    Ok(ExitCode::from(status.code().or(signal).unwrap_or(1) as u8))
}

/// The library that the program would get without the tracer.
fn library(named: Option<&Path>) -> Result<PathBuf> {
    let found = match named {
        Some(file) => Some(file.canonicalize().with_context(|| file.display().to_string())?),
        None => search::candidates().into_iter().find_map(|it| search::implementation(&it.file)),
    };
    found.context("no libgdrapi found; name one with --lib, or put its directory on LD_LIBRARY_PATH")
}

/// Replaces what is on the terminal by what was recorded until now.
fn show(run: &Run, directory: &Path, known: &mut Known) {
    let Ok(recorded) = recorded::read_all(directory) else {
        return;
    };
    let report = Report::of(run, &recorded, known);
    let Some(total) = report.total() else {
        return;
    };
    let terminal = Term::stderr();
    if terminal.is_term() {
        let _ = terminal.clear_screen();
    }
    eprintln!("gdrcopy trace: {}\n{}", report.statement, total.copy_table());
}

/// A file's name with the process and the host in it.
fn named(file: &Path, pid: u32) -> PathBuf {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = file.to_string_lossy().replace("%p", &pid.to_string());
    name.replace("%h", host.trim_end()).into()
}
