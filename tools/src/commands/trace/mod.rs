//! `gdrcopy trace`: reports how a program uses libgdrapi.
//!
//! ```text
//! mod.rs            options; runs the program with the object of tools/trace/ preloaded
//!   report.rs       statement, processes, tables
//!     summary.rs    numbers of one process, or of several in sum
//!       recorded.rs files that the object wrote   sites.rs names of places in code   functions.rs calls of libgdrapi
//! ```
#![forbid(unsafe_code)]

mod functions;
mod recorded;
mod report;
mod sites;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Result, bail, ensure};
use clap::{ArgAction, Args};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::libgdrapi::preload;
use crate::measure::clock;
use crate::output;
use crate::system::interrupt::not_ignored;
use report::Run;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints to stderr when the program ends: whether it used libgdrapi, its calls, copies by direction and size, the most used \
pins with the code that pinned them, misuse, what is left, and the call in which a signal ended it. The program needs no \
changes: linked or opened by dlopen, libgdrapi.so and libgdrapi.so.2 are traced.

Loads and stores of the program itself to a mapping are not seen, nor are programs that are statically linked, \
set-user-ID or of another arch, nor a libgdrapi that dlmopen or a full path opens. A path that is built into a program \
(RUNPATH) is unknown here: name its library with --lib.

In names of files, %p stands for the program's process id, and %h for the host.

Examples:
  gdrcopy trace -- ./program arguments
  mpirun -n 8 gdrcopy trace --json trace.%h.%p.json -- ./program

Exit status: that of the program, 128 plus the signal's number if a signal ended it, 127 if there is no such program, 126 \
if it cannot be run, 1 if it cannot be traced or the file cannot be written.")]
pub(crate) struct Options {
    /// Write all numbers as JSON to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also what it starts, true or false
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, hide_possible_values = true, default_value_t = true)]
    children: bool,

    /// The libgdrapi that it gets, not what the loader finds
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,

    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(file) = &options.json {
        output::check_writable(Some(&named(file, None)))?; // This is checked first, because the program may run long.
    }
    let directory = tempfile::Builder::new().prefix("gdrcopy-trace-").tempdir()?;
    let path = directory.path();
    // The preloaded object appends the names of its files to the path, in a buffer of 512 bytes.
    ensure!(path.as_os_str().len() <= 400, "{}: set TMPDIR to a shorter path", path.display());
    let library = preload::library(options.lib.as_deref())?;
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]);
    let not_traced = functions::others_of(&library);
    let links = if not_traced.is_empty() { None } else { Some(path) };
    command.env("LD_PRELOAD", preload::variable(&library, links)?);
    command.env("GDRTRACE_DIRECTORY", path).env("GDRTRACE_LIBRARY", &library);
    let ns_per_tick = clock::ns_per_tick();
    let mut signals = forwarded_signals()?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            say(&format!("gdrcopy trace: {}: {error}\n", command.get_program().display()));
            // A shell exits with the same codes if it cannot start a program.
            return Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }));
        }
    };
    let pid = child.id();
    let status = wait_for(child, &mut signals)?;
    let run = Run {
        command: options.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        pid,
        children: options.children,
        signal: status.signal(),
        ns_per_tick,
        library,
        not_traced,
        directory: path.to_owned(),
    };
    let report = run.report()?;
    say(&report::text(&report));
    let code = status.code().unwrap_or(128 + run.signal.unwrap_or(0)) as u8;
    if let Some(file) = &options.json {
        let file = named(file, Some(pid));
        if let Err(error) = fs::write(&file, serde_json::to_string_pretty(&report)? + "\n") {
            say(&format!("gdrcopy trace: writing {}: {error}\n", file.display()));
            return Ok(ExitCode::from(code.max(1)));
        }
    }
    Ok(ExitCode::from(code))
}

/// Registers the signals that this process forwards to the program, and SIGCHLD. It must be called before the program
/// starts, so that the end of the program is noticed.
fn forwarded_signals() -> io::Result<SignalsInfo<WithRawSiginfo>> {
    // Signals that are ignored, as under nohup, get no handler. Else exec would reset them to the default action, and
    // the program would not ignore them.
    let mut signals = not_ignored(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]);
    signals.push(SIGCHLD);
    SignalsInfo::new(signals)
}

/// Forwards signals to the program. Returns how it ended.
fn wait_for(mut child: Child, signals: &mut SignalsInfo<WithRawSiginfo>) -> Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed());
    for signal in signals.forever() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match (signal.si_signo, signal.si_code) {
            (SIGCHLD, _) => {}
            // A positive code means that Linux itself sent the signal, for example because the user typed Ctrl-C. The
            // program got it from Linux too, so it is not forwarded.
            (SIGINT | SIGQUIT, 1..) => {}
            (signal, _) => drop(kill(pid, Signal::try_from(signal)?)),
        }
    }
    bail!("no more signals arrive")
}

/// Prints to stderr, if that is possible.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Replaces %h in the name of a file by the host's name and, if `pid` is known, %p by this number.
fn named(file: &Path, pid: Option<u32>) -> PathBuf {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut name = file.to_string_lossy().replace("%h", host.trim_end());
    if let Some(pid) = pid {
        name = name.replace("%p", &pid.to_string());
    }
    name.into()
}
