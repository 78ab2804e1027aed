//! How tools end: exit status 1 for failures, 2 for wrong options.
#![forbid(unsafe_code)]

use std::fmt;
use std::process::ExitCode;

/// Options that contradict each other, or what they are used on.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Tells an error on stderr, and the exit status that belongs to it.
pub fn report(tool: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("gdrcopy {tool}: {error:#}");
    if error.is::<Usage>() {
        eprintln!("`gdrcopy {tool} --help` lists the options.");
        return ExitCode::from(2);
    }
    ExitCode::FAILURE
}
