//! `gdrcopy copylat`: latency of copies of 1, 2, 4, 8, … bytes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::copies::{self, Counts};
use crate::measure::method::Kind;
use crate::measure::options::SharedOptions;
use crate::measure::plan::powers_of_two;
use crate::measure::sampler::Sweep;
use crate::output::Usage;
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy copylat --cumemcpy --plot copylat.svg
  gdrcopy copylat --cpu 4 --lib new=build/lib/libgdrapi.so.2 --lib old=/usr/lib/libgdrapi.so.2")]
pub(crate) struct Options {
    /// Size of the largest copy
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    size: Bytes,

    #[command(flatten)]
    counts: Counts,

    /// Also time CUDA's own copies
    #[arg(short = 'c', long)]
    cumemcpy: bool,

    /// Cold caches of the CPU, for cached mappings only
    ///
    /// The GPU writes the memory before each copy, which removes it from the caches.
    #[arg(short = 'C', long)]
    cold_device: bool,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let size = options.size.0;
    if size == 0 {
        return Err(Usage("--size must be at least 1".into()).into());
    }
    let others: &[_] = if options.cumemcpy { &[Kind::CuMemcpy] } else { &[] };
    let session = options.shared.open("copylat", size, others)?;
    let mapping_type = &session.setup.libraries[0].mapping_type;
    if options.cold_device && mapping_type != "cached" {
        return Err(Usage(format!("-C is for cached mappings: the CPU does not cache a {mapping_type} one")).into());
    }
    let points = options.counts.points(&powers_of_two(size), 0);
    let sweep = Sweep { points, cold_device: options.cold_device };
    copies::run(&options.shared, &session, &sweep, copies::text)
}
