//! Options of the tools that measure over sizes.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::Args;

use super::chart::Plot;
use super::method::Kind;
use super::session::Session;
use super::target::Target;
use crate::output::{self, Output};

#[derive(Debug, Args)]
pub(crate) struct SharedOptions {
    #[command(flatten)]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) plot: Plot,
}

impl SharedOptions {
    /// Opens the libraries, with buffers of this length.
    pub(crate) fn open(&self, tool: &'static str, len: usize, others: &[Kind]) -> Result<Session> {
        output::ensure_writable(&[&self.output.json, &self.plot.file])?;
        Session::open(tool, &self.target, len, others)
    }
}
