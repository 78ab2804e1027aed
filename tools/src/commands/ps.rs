//! `gdrcopy ps`: the processes that use GDRCopy.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::geteuid;

use crate::libgdrapi::search::Maker;
use crate::system::bytes::Bytes;
use crate::system::process::{self, Process};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdrcopy ps
  gdrcopy ps --json

Exit status: 0, also if some processes may not be examined; 1 if /proc cannot
be read; 2 for wrong options.")]
pub(crate) struct Options {
    /// Print JSON, one object per process
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (processes, refused) = process::all().context("/proc cannot be listed: mount it")?;
    let list = if options.json { serde_json::to_string_pretty(&processes)? + "\n" } else { text(&processes) };
    io::stdout().write_all(list.as_bytes())?;
    if refused > 0 {
        let remedy = match geteuid().is_root() {
            true => "run it outside this container or sandbox, whose root may not",
            false => "run it as root to see all",
        };
        eprintln!("gdrcopy ps: without those that may not be examined, {refused}: {remedy}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a line for each process, and a line for each of its libraries.
fn text(processes: &[Process]) -> String {
    if processes.is_empty() {
        return "no process that may be examined uses GDRCopy\n".into();
    }
    let mut text =
        format!("{:<16}{:>9}{:>7}{:>6}{:>10}{:>12}\n", "COMMAND", "PID", "UID", "OPEN", "MAPPINGS", "MAPPED");
    for process in processes {
        let Process { command, pid, descriptors, mappings, .. } = process;
        let uid = match process.uid {
            Some(uid) => uid.to_string(),
            None => "?".to_owned(),
        };
        let mapped = Bytes(process.mapped_bytes).to_string();
        let emulated = if process.emulated { "  (emulated)" } else { "" };
        text += &format!("{command:<16}{pid:>9}{uid:>7}{descriptors:>6}{mappings:>10}{mapped:>12}{emulated}\n");
        for library in &process.libraries {
            // The process may be in a container, so the path is looked up in its root directory.
            let seen = PathBuf::from(format!("/proc/{pid}/root{library}"));
            let maker = match Maker::of(&seen) {
                Maker::None => "removed, replaced or unreadable",
                maker => maker.describe(),
            };
            // Names of files can contain characters that control the terminal.
            text += &format!("  {maker}: {}\n", library.replace(char::is_control, "\u{fffd}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_cannot_control_the_terminal() {
        let libraries = vec!["/tmp/libgdrapi\x1b[2J.so".into()];
        assert!(text(&[Process { libraries, ..Process::default() }]).ends_with("/tmp/libgdrapi\u{fffd}[2J.so\n"));
    }
}
