//! `gdrcopy doctor`: whether and how gdrcopy works on this machine, and what to do where it does
//! not.
//!
//! ```text
//! run            mod.rs       → checks → render
//! checks/        what is found: a file a topic, each a section of the report
//!   system/      what the machine says: files, the module, the CUDA driver, NVML; no judgement
//!   self_test    a process of its own (probe.rs), which a library may crash or hang
//! finding.rs     one line of the report, and the report
//! render/        the report as text, or as JSON
//! ```
mod checks;
mod finding;
mod probe;
mod render;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use probe::Probe;

/// The options of `gdrcopy doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if gdrcopy is usable, 1 if not, 2 for wrong options.")]
pub struct Options {
    /// The GPU to test, by CUDA's number; can be given again. Without it, all
    #[arg(short = 'd', long = "gpu", value_name = "N")]
    gpus: Vec<i32>,

    /// The libgdrapi file to test. Without it, the one that the loader finds
    #[arg(long = "lib", value_name = "FILE")]
    library: Option<PathBuf>,

    /// Tell the report as JSON: usable, problems, warnings, and sections of findings (subject,
    /// verdict, value, remedy)
    #[arg(long)]
    json: bool,

    /// What doctor runs itself for
    #[arg(long, value_name = "WHAT", hide = true)]
    probe: Option<Probe>,
}

/// Examines the machine and tells what was found.
///
/// # Errors
/// stdout cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(probe) = options.probe {
        return probe::answer(probe, options.library.as_deref());
    }
    let report = checks::examine(options);
    if options.json {
        render::json(&report)?;
    } else {
        render::text(&report)?;
    }
    Ok(match report.usable {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
