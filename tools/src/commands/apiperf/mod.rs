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

use super::Runs;
use crate::cuda::GPU_PAGE;
use crate::measure::chart::Plot;
use crate::measure::session::{Extra, Session};
use crate::measure::target::Target;
use crate::output::{self, Output, Usage};
use crate::system::bytes::Bytes;

/// The options of `gdrcopy apiperf`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy apiperf --size 64M --plot apiperf.svg")]
pub(crate) struct Options {
    /// Size of the largest buffer; the smallest is one GPU page of 64 KiB
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    size: Bytes,

    /// How often each call is timed
    #[arg(short = 'n', long, default_value = "100", value_name = "N", value_parser = at_least_one)]
    iterations: usize,

    /// How often each call is made before timing
    #[arg(short = 'w', long, default_value_t = 10, value_name = "N")]
    warmup: usize,

    #[command(flatten)]
    runs: Runs,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    plot: Plot,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Runs the tool.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let largest = options.size.0;
    if largest < GPU_PAGE {
        return Err(Usage(format!("--size must be at least {GPU_PAGE}, one GPU page")).into());
    }
    let config = measure::Config {
        largest,
        runs: options.runs.number,
        warmup: options.warmup,
        iterations: options.iterations,
        mapping: options.target.mapping,
        force_pcie: options.target.force_pcie,
        verify: options.target.verify,
    };
    let session = Session::open("apiperf", &options.target, largest, &Extra::default())?;
    let results = measure::run(session, config, &options.target)?;
    report::write(&results, &options.output, &options.plot)?;
    Ok(output::exit_status("apiperf", results.interrupted))
}
