//! `gdrcopy ps`: the processes that use GDRCopy.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use crate::output::Output;
use crate::output::table::Table;
use crate::system::bytes::Bytes;
use crate::system::process::{self, Process};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Lists processes that have /dev/gdrdrv open or mapped, or a file named libgdrapi*.so* loaded.

Examples:
  gdrcopy ps
  gdrcopy ps --json ps.json")]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Record {
    pid: u32,
    uid: Option<u32>,
    command: String,
    /// Descriptors of /dev/gdrdrv.
    open: usize,
    mappings: usize,
    mapped_bytes: usize,
    /// Files, separated by blanks.
    libgdrapi: String,
    emulated: bool,
}

impl From<Process> for Record {
    fn from(process: Process) -> Record {
        let files: Vec<_> = process.libraries.iter().map(|file| file.to_string_lossy()).collect();
        Record {
            pid: process.pid,
            uid: process.uid,
            open: process.descriptors,
            mappings: process.mappings,
            mapped_bytes: process.mapped,
            libgdrapi: files.join(" "),
            emulated: process.emulated,
            command: process.command,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (processes, refused) = process::all().context("/proc cannot be listed: mount it")?;
    let records: Vec<_> = processes.into_iter().map(Record::from).collect();
    options.output.write(|| text(&records), &records)?;
    if refused > 0 {
        eprintln!("gdrcopy ps: without those that may not be examined, {refused}: run it as root to see all");
    }
    Ok(ExitCode::SUCCESS)
}

fn text(records: &[Record]) -> String {
    if records.is_empty() {
        return "no process that may be examined uses GDRCopy\n".into();
    }
    let mut table = Table::new(["COMMAND", "PID", "UID", "OPEN", "MAPPINGS", "MAPPED", "LIBGDRAPI"]);
    for record in records {
        let emulated = if record.emulated { " (emulated)" } else { "" };
        table.push(vec![
            record.command.clone(),
            record.pid.to_string(),
            record.uid.map_or("?".into(), |uid| uid.to_string()),
            record.open.to_string(),
            record.mappings.to_string(),
            format!("{}{emulated}", Bytes(record.mapped_bytes)),
            // The names of files could control the terminal.
            record.libgdrapi.replace(char::is_control, "\u{fffd}"),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_cannot_control_the_terminal() {
        let libraries = vec!["/tmp/libgdrapi\x1b[2J.so".into()];
        let record = Record::from(Process { libraries, ..Process::default() });
        assert!(text(&[record]).ends_with("/tmp/libgdrapi\u{fffd}[2J.so\n"));
    }
}
