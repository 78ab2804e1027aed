//! `gdrcopy doctor`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// The options of `gdrcopy doctor`.
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: &Options) -> Result<ExitCode> {
    bail!("this build has no doctor")
}
