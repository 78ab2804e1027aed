//! `gdrcopy apiperf`: time of the calls that pin and map, over the size of the buffer.
//!
//! ```text
//! options → Session → measure.rs: the calls of one size, in turn → report.rs: text, JSON, CSV, chart
//! ```
#![forbid(unsafe_code)]

mod measure;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cuda::GPU_PAGE;
use crate::measure::chart::Plot;
use crate::measure::session::{Extra, Session};
use crate::measure::target::Target;
use crate::output::{self, Output, Usage};
use measure::Config;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy apiperf --size 64M --plot apiperf.svg")]
pub(crate) struct Options {
    #[command(flatten)]
    config: Config,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    plot: Plot,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let largest = options.config.size.0;
    if largest < GPU_PAGE {
        return Err(Usage(format!("--size must be at least {GPU_PAGE}, one GPU page")).into());
    }
    let session = Session::open("apiperf", &options.target, largest, &Extra::default())?;
    let results = measure::run(session, &options.config, &options.target)?;
    report::write(&results, &options.output, &options.plot)?;
    Ok(output::exit_status("apiperf", results.interrupted))
}
