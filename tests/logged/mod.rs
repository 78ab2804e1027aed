//! Runs commands whose output goes to a file.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Runs a command. Returns its status, and its output, which also stays in the file `log`.
pub(crate) fn run(command: &mut Command, log: &Path) -> io::Result<(ExitStatus, String)> {
    fs::create_dir_all(log.parent().expect("a directory"))?;
    let file = File::create(log)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status()?;
    Ok((status, String::from_utf8_lossy(&fs::read(log)?).into_owned()))
}

/// Says why a run has failed, with the last lines of its output.
pub(crate) fn failure(why: &str, output: &str, log: &Path) -> String {
    let lines: Vec<_> = output.lines().collect();
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    format!("{why}; the end of {}:\n{end}", log.display())
}
