//! `gdrcopy copybw`: bandwidth of copies to and from a mapped GPU buffer.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::copies::{self, Counts};
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Cold, powers_of_two};
use crate::measure::results::Results;
use crate::measure::session::Extra;
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
    let session = options.shared.open("copybw", options.size.0, &Extra::default())?;
    copies::run(&options.shared, &session, points, Cold::default(), |results| {
        let bandwidths = if options.sweep.is_none() { bandwidths(results) } else { String::new() };
        format!("{}{bandwidths}{}", results.setup, copies::text(results))
    })
}

fn sizes(options: &Options) -> Result<Vec<usize>, Usage> {
    let (size, offset) = (options.size.0, options.offset.0);
    let Some(room) = size.checked_sub(offset).filter(|&room| room > 0) else {
        return Err(Usage(format!(
            "an offset of {offset} bytes leaves nothing of a buffer of {size}: use a smaller -o or a larger -s"
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

/// Lines that scripts search for, `write BW: 1234.56MB/s`, where MB are MiB.
fn bandwidths(results: &Results) -> String {
    let mut text = String::new();
    for row in &results.rows {
        for (method, label) in results.methods.iter().enumerate() {
            if results.methods.len() > 1 {
                let _ = write!(text, "{label}: ");
            }
            let direction = row.point.direction.name();
            let _ = match row.bandwidth(method) {
                Some(bandwidth) => writeln!(text, "{direction} BW: {bandwidth:.2}MB/s"),
                None => writeln!(text, "{direction} BW: FAILED"),
            };
        }
    }
    text
}
