//! `gdrcopy copybw`: bandwidth of copies to and from a mapped GPU buffer.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::copies::{self, Counts};
use crate::measure::options::SharedOptions;
use crate::measure::plan::powers_of_two;
use crate::measure::results::{Record, Results};
use crate::measure::sampler::Sweep;
use crate::output::Usage;
use crate::system::bytes::Bytes;

/// The options of `gdrcopy copybw`.
///
/// Sizes are bytes, or end in K, M or G.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy copybw --cpu 4
  gdrcopy copybw --sweep 4M --size 4M --plot copybw.svg")]
pub(crate) struct Options {
    /// Size of the GPU buffer
    #[arg(short, long, default_value = "131072", value_name = "BYTES")]
    size: Bytes,

    /// Size of each copy [default: to the buffer's end]
    #[arg(short, long, value_name = "BYTES")]
    copy_size: Option<Bytes>,

    /// Where in the buffer copies start
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    offset: Bytes,

    /// Copy 1, 2, 4, 8, … bytes, up to this or what fits
    #[arg(short = 'l', long, num_args = 0..=1, value_name = "BYTES", conflicts_with = "copy_size")]
    sweep: Option<Option<Bytes>>,

    #[command(flatten)]
    counts: Counts,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let points = options.counts.points(&sizes(options)?, options.offset.0);
    let session = options.shared.open("copybw", options.size.0, &[])?;
    let sweep = Sweep { points, cold_device: false };
    copies::run(&options.shared, &session, &sweep, |results| {
        let bandwidths = if options.sweep.is_none() { bandwidths(results) } else { String::new() };
        format!("{bandwidths}{}", copies::text(results))
    })
}

fn sizes(options: &Options) -> Result<Vec<usize>, Usage> {
    let size = options.size.0;
    let offset = options.offset.0;
    let room = size.saturating_sub(offset);
    if room == 0 {
        return Err(Usage(format!(
            "an offset of {offset} bytes leaves nothing of a buffer of {size}: use a smaller -o or a larger -s"
        )));
    }
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
        Some(_) => powers_of_two(largest),
        None => vec![largest],
    })
}

/// Lines that scripts search for, `write BW: 1234.56MB/s`, where MB are MiB.
fn bandwidths(results: &Results) -> String {
    let mut text = String::new();
    let has_several = results.methods().len() > 1;
    for Record { method, point, bandwidth_mib_per_s, .. } in &results.records {
        if has_several {
            let _ = write!(text, "{method}: ");
        }
        let direction = point.direction.name();
        let _ = match bandwidth_mib_per_s {
            Some(bandwidth) => writeln!(text, "{direction} BW: {bandwidth:.2}MB/s"),
            None => writeln!(text, "{direction} BW: FAILED"),
        };
    }
    text
}
