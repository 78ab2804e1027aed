//! How measuring tools end: results on stdout, what was wrong on stderr, and an exit status.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use crate::copying::Results;
use crate::interrupt;

/// Writes results to stdout.
///
/// # Errors
/// It cannot be written to.
pub fn tell(results: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(results.as_bytes())?;
    out.flush()
}

/// The exit status after copies: 1 if one was wrong, which is said, 130 if the user has ended the
/// tool early.
pub fn of_copies(results: &Results) -> ExitCode {
    let tool = results.setup.tool;
    let mut failures = 0;
    for failure in results.failures() {
        eprintln!("gdrcopy {tool}: wrong copy: {failure}");
        failures += 1;
    }
    if failures > 0 {
        return ExitCode::FAILURE;
    }
    of_run(tool, results.interrupted)
}

/// The exit status of a run in which nothing was wrong.
pub fn of_run(tool: &str, interrupted: bool) -> ExitCode {
    if !interrupted {
        return ExitCode::SUCCESS;
    }
    eprintln!("gdrcopy {tool}: interrupted; these are the results so far");
    ExitCode::from(interrupt::STATUS)
}
