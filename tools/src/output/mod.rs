//! The output of results for users, as text and JSON, with progress, errors and the exit status.
#![forbid(unsafe_code)]

pub(crate) mod table;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use crate::system::interrupt;

#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Results as text or json
    #[arg(long, value_enum, hide_possible_values = true, default_value = "text")]
    format: Format,

    /// Also write JSON to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// One JSON document
    Json,
}

impl Output {
    /// Prints the results, and writes the JSON file if one was asked for.
    pub(crate) fn write(&self, text: impl FnOnce() -> String, document: &impl Serialize) -> Result<()> {
        let json = serde_json::to_string_pretty(document)? + "\n";
        let printed = match self.format {
            Format::Text => &text(),
            Format::Json => &json,
        };
        let mut out = io::stdout().lock();
        out.write_all(printed.as_bytes())?;
        out.flush()?;
        if let Some(file) = &self.json {
            fs::write(file, json).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }
}

/// Fails if a file for results cannot be written. Tools call this first, so that they do not measure for minutes in
/// vain.
pub(crate) fn check_writable(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else {
        return Ok(());
    };
    let mut must_exist = file;
    if !file.exists() {
        must_exist = file.parent().unwrap_or(file);
    }
    if must_exist.as_os_str().is_empty() {
        must_exist = Path::new(".");
    }
    let checked = if file.is_dir() { Err(Errno::EISDIR) } else { access(must_exist, AccessFlags::W_OK) };
    checked.with_context(|| format!("{} cannot be written", file.display()))
}

/// Returns the text that a value, such as a variant of an enum, has in JSON.
pub(crate) fn name(value: impl Serialize) -> String {
    let name = serde_json::to_value(value).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// A progress bar on stderr. Each part of the work moves it by the same length. Dropping it removes the bar. If stderr
/// is not a terminal, the bar is not shown.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The number of parts that have ended.
    parts: usize,
}

/// The number of steps of the progress bar for each part of the work.
const STEPS: usize = 1000;

impl Progress {
    pub(crate) fn new(parts: usize) -> Progress {
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}");
        let bar = ProgressBar::new((parts * STEPS) as u64).with_finish(ProgressFinish::AndClear);
        Progress { bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())), parts: 0 }
    }

    /// Shows the name of the part of the work that begins.
    pub(crate) fn begin(&self, part: String) {
        self.bar.set_message(part);
    }

    /// Shows that `count` of `of` units of the current part are done.
    pub(crate) fn done(&self, count: usize, of: usize) {
        let steps = STEPS * count / of.max(1);
        self.bar.set_position((self.parts * STEPS + steps) as u64);
    }

    pub(crate) fn end(&mut self) {
        self.parts += 1;
        self.done(0, 1);
    }
}

/// The error of options that do not fit each other, or that do not fit this system.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// The exit status that a shell reports if SIGPIPE has ended a program.
const CLOSED_PIPE: u8 = 128 + 13;

pub(crate) fn print_error(tool: &str, error: &anyhow::Error) -> ExitCode {
    // A reader such as `head` closes the pipe when it has read enough, which is no error to report.
    if let Some(error) = error.downcast_ref::<io::Error>()
        && error.kind() == ErrorKind::BrokenPipe
    {
        return ExitCode::from(CLOSED_PIPE);
    }
    eprintln!("gdrcopy {tool}: {error:#}");
    if error.is::<Usage>() {
        eprintln!("`gdrcopy {tool} --help` lists the options.");
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}

/// Returns the exit status of a run. If it was interrupted, prints that.
pub(crate) fn exit_status(tool: &str, interrupted: bool) -> ExitCode {
    if !interrupted {
        return ExitCode::SUCCESS;
    }
    eprintln!("gdrcopy {tool}: interrupted; these are the results so far");
    ExitCode::from(interrupt::STATUS)
}

/// Prints that a run was interrupted before it had a result, and returns its exit status.
pub(crate) fn interrupted_early(tool: &str) -> ExitCode {
    eprintln!("gdrcopy {tool}: interrupted before the first result");
    ExitCode::from(interrupt::STATUS)
}
