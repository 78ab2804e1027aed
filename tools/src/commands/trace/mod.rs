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
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{ArgAction, Args};
use console::Term;
use gdrcopy_trace_tables::ticks;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::libgdrapi::{has, search};
use program::{Program, Settings};
pub(crate) use program::{objects, preloaded};
use recorded::Rate;
use report::{Report, Run};
use sites::Known;

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

Exit status: that of the program, 128 plus the signal's number if a signal ended it, 1 if it cannot be traced or a file \
cannot be written.")]
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

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for file in [&options.json, &options.chrome, &options.plot].into_iter().flatten() {
        // Before the program runs, which may take long.
        check_writable(&named(file, None))?;
    }
    let directory = tempfile::Builder::new().prefix("gdrcopy-trace-").tempdir()?;
    let path = directory.path();
    let is_usable = path.to_str().is_some_and(|path| path.len() <= LONGEST);
    ensure!(is_usable, "{}: set TMPDIR to a shorter path, in UTF-8", path.display());
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
        library,
        rate,
        ended: None,
        loaded: false,
        not_recorded: 0,
    };
    let mut known = Known::new();
    let status = program.wait(|| {
        if options.live {
            show(&run, directory.path(), &mut known);
        }
    })?;
    (run.ended, run.loaded) = (Some(ticks()), recorded::was_loaded(directory.path(), pid));
    run.not_recorded = recorded::failed(directory.path())?;
    let recorded = recorded::read_all(directory.path())?;
    let report = Report::of(&run, &recorded, &mut known);
    say(&report.text());
    let named = |file: &Option<PathBuf>| file.as_ref().map(|file| named(file, Some(pid)));
    let json = named(&options.json).map(|file| {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(&file, json).with_context(|| format!("writing {}", file.display()))
    });
    let chrome = named(&options.chrome).map(|file| {
        let (calls, left_out) = events::write(&recorded, rate, &file)?;
        say(&format!("gdrcopy trace: {calls} calls are events; {left_out} earlier ones were left out\n"));
        Ok(())
    });
    let plot = named(&options.plot).map(|file| match report.total().map(|it| it.copied()) {
        Some((1.., _)) => plot::draw(&report, &file),
        _ => {
            say("gdrcopy trace: no chart: nothing was copied\n");
            Ok(())
        }
    });
    let errors: Vec<_> = [json, chrome, plot].into_iter().flatten().filter_map(Result::err).collect();
    errors.iter().for_each(|error| say(&format!("gdrcopy trace: {error:#}\n")));
    let signal = status.signal().map(|signal| 128 + signal);
    let status = status.code().or(signal).unwrap_or(1) as u8;
    Ok(ExitCode::from(status.max(u8::from(!errors.is_empty()))))
}

/// Prints to stderr, if that is possible.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Fails if a file cannot be written, where that is known before.
fn check_writable(file: &Path) -> Result<()> {
    let directory = file.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
    let is_there = if file.exists() { file } else { directory };
    let checked = match file.is_dir() {
        true => Err(Errno::EISDIR),
        false => access(is_there, AccessFlags::W_OK),
    };
    checked.with_context(|| format!("{} cannot be written", file.display()))
}

/// The longest directory to whose name the tracer adds those of its files.
const LONGEST: usize = 400;

/// The library that the program would get without the tracer.
pub(crate) fn library(named: Option<&Path>) -> Result<PathBuf> {
    let found = match named {
        Some(file) => {
            let library = file.canonicalize().with_context(|| file.display().to_string())?;
            ensure!(
                has(&library, &["gdr_open"]) == [true],
                "{} is no libgdrapi, as it has no gdr_open",
                file.display()
            );
            Some(library)
        }
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
    say(&format!("gdrcopy trace: {}\n{}\n", report.statement, total.copy_table()));
}

/// A file's name with the host in it, and the process if it is known.
fn named(file: &Path, pid: Option<u32>) -> PathBuf {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = file.to_string_lossy().replace("%h", host.trim_end());
    pid.map_or(name.clone(), |pid| name.replace("%p", &pid.to_string())).into()
}
