//! `gdrcopy apiperf`: time of the calls that pin and map, over the size of the buffer.
//!
//! ```text
//! options → Session → measure.rs: the calls of one size, in turn → report.rs → text, JSON, CSV, chart
//! ```
#![forbid(unsafe_code)]

mod measure;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::bytes::Bytes;
use crate::cuda::GPU_PAGE;
use crate::ending;
use crate::failure::Usage;
use crate::options::{Format, Output, Target};
use crate::session::Session;

/// The options of `gdrcopy apiperf`.
#[derive(Debug, Args)]
pub struct Options {
    /// Bytes of the largest buffer; the smallest is one GPU page of 64 KiB
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    pub size: Bytes,

    /// How often each call is timed
    #[arg(short = 'n', long, default_value = "100", value_name = "N", value_parser = at_least_one)]
    pub iterations: usize,

    /// How often each call is made before, untimed
    #[arg(short = 'w', long, default_value_t = 10, value_name = "N")]
    pub warmup: usize,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    /// Draw the median of each call over size to an SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Runs it.
///
/// # Errors
/// Something fails; the message says what to do.
pub fn run(options: &Options) -> Result<ExitCode> {
    let largest = options.size.0;
    if largest < GPU_PAGE {
        return Err(Usage(format!(
            "-s: a GPU page has {GPU_PAGE} bytes, and pins are whole pages"
        ))
        .into());
    }
    let session = Session::open("apiperf", &options.target, largest)?;
    let results = measure::run(session, options)?;
    ending::tell(&match options.output.format {
        Format::Text => report::text(&results),
        Format::Json => report::json(&results)?,
        Format::Csv => report::csv(&results)?,
    })?;
    if let Some(file) = &options.plot {
        report::plot(&results, file)?;
    }
    Ok(ending::of_run("apiperf", results.interrupted))
}
