//! `gdrcopy copybw`: bandwidth of copies to and from a mapped GPU buffer.
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

/// The options of `gdrcopy copybw`.
///
/// Sizes are bytes, or end in K, M or G.
#[derive(Debug, Args)]
pub struct Options {
    /// Bytes of the GPU buffer
    #[arg(short, long, default_value = "131072", value_name = "BYTES")]
    pub size: Bytes,

    /// Bytes of each copy [default: from the offset to the buffer's end]
    #[arg(short, long, value_name = "BYTES")]
    pub copy_size: Option<Bytes>,

    /// Where in the buffer copies begin
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    pub offset: Bytes,

    /// Copies of 1, 2, 4, 8, … bytes, up to this many [default: as fit into the buffer]
    #[arg(short = 'l', long, num_args = 0..=1, value_name = "BYTES", conflicts_with = "copy_size")]
    pub sweep: Option<Option<Bytes>>,

    /// How often each write is made; 0 for no writes
    #[arg(short = 'w', long, default_value_t = 10_000, value_name = "N")]
    pub writes: usize,

    /// How often each read is made; 0 for no reads
    #[arg(short = 'r', long, default_value_t = 100, value_name = "N")]
    pub reads: usize,

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
    let sweep = Sweep {
        sizes: sizes(options)?,
        offset: options.offset.0,
        writes: options.writes,
        reads: options.reads,
        cumemcpy: false,
        cold: false,
        verify: options.target.verify,
    };
    let session = Session::open("copybw", &options.target, options.size.0)?;
    let results = sweep.run(&session)?;
    ending::tell(&match options.output.format {
        Format::Text => text::render(&results, options.sweep.is_some()),
        Format::Json => report::json(&results)?,
        Format::Csv => report::csv(&results)?,
    })?;
    if let Some(file) = &options.plot {
        report::plot(&results, file)?;
    }
    Ok(ending::of_copies(&results))
}

/// The sizes of the copies.
fn sizes(options: &Options) -> Result<Vec<usize>, Usage> {
    let (size, offset) = (options.size.0, options.offset.0);
    let Some(room) = size.checked_sub(offset).filter(|&room| room > 0) else {
        return Err(Usage(format!(
            "an offset of {offset} bytes leaves nothing of a buffer of {size}: take a smaller -o, or a larger -s"
        )));
    };
    let largest = match (options.sweep, options.copy_size) {
        (Some(Some(largest)), _) => largest.0,
        (_, Some(copy_size)) => copy_size.0,
        (Some(None), None) | (None, None) => room,
    };
    if largest == 0 || largest > room {
        return Err(Usage(format!(
            "copies of {largest} bytes at offset {offset} do not fit into a buffer of {size}: see -s, -c and -o"
        )));
    }
    Ok(match options.sweep {
        Some(_) => powers_of_two(largest).collect(),
        None => vec![largest],
    })
}
