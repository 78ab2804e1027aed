//! `gdrcopy copylat`: latency of copies of 1, 2, 4, 8, … bytes.
#![forbid(unsafe_code)]

mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::bytes::Bytes;
use crate::copying::{Sweep, powers_of_two, report};
use crate::ending;
use crate::failure::Usage;
use crate::options::{Format, Output, Target};
use crate::session::Session;

/// The options of `gdrcopy copylat`.
#[derive(Debug, Args)]
pub struct Options {
    /// Bytes of the GPU buffer, and of the largest copy
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    pub size: Bytes,

    /// How often each write is made; 0 for no writes
    #[arg(short = 'w', long, default_value_t = 10_000, value_name = "N")]
    pub writes: usize,

    /// How often each read is made; 0 for no reads
    #[arg(short = 'r', long, default_value_t = 100, value_name = "N")]
    pub reads: usize,

    /// Time CUDA's own copies, too
    #[arg(short = 'c', long)]
    pub cumemcpy: bool,

    /// Have the GPU write the memory before each copy, which the CPU's caches then lack; for cached
    /// mappings
    #[arg(short = 'C', long)]
    pub cold: bool,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    /// Draw latency and bandwidth over size to an SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// Something fails; the message says what to do.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.size.0 == 0 {
        return Err(Usage("a buffer has at least one byte: see -s".into()).into());
    }
    let session = Session::open("copylat", &options.target, options.size.0)?;
    let mapping_type = session.setup.libraries[0].mapping_type;
    if options.cold && mapping_type != "cached" {
        return Err(Usage(format!(
            "-C is for cached mappings: no CPU cache holds bytes of a {mapping_type} one"
        ))
        .into());
    }
    let sweep = Sweep {
        sizes: powers_of_two(options.size.0).collect(),
        offset: 0,
        writes: options.writes,
        reads: options.reads,
        cumemcpy: options.cumemcpy,
        cold: options.cold,
        verify: options.target.verify,
    };
    let results = sweep.run(&session)?;
    ending::tell(&match options.output.format {
        Format::Text => text::render(&results),
        Format::Json => report::json(&results)?,
        Format::Csv => report::csv(&results)?,
    })?;
    if let Some(file) = &options.plot {
        report::plot(&results, file)?;
    }
    Ok(ending::of_copies(&results))
}
