//! `gdrcopy copybw`: bandwidth of copies to and from a mapped GPU buffer.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{CopyOptions, Counts, Runs};
use crate::measure::plan::powers_of_two;
use crate::measure::results::{Results, Row};
use crate::measure::session::{Extra, Session};
use crate::output::table::Table;
use crate::output::{Usage, microseconds, ratio};
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

    /// Size of each copy [default: from the offset to the buffer's end]
    #[arg(short, long, value_name = "BYTES")]
    copy_size: Option<Bytes>,

    /// Where in the buffer copies start
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    offset: Bytes,

    /// Copies of 1, 2, 4, 8, … bytes, up to this size [default: as fit into the buffer]
    #[arg(short = 'l', long, num_args = 0..=1, value_name = "BYTES", conflicts_with = "copy_size")]
    sweep: Option<Option<Bytes>>,

    #[command(flatten)]
    counts: Counts,

    #[command(flatten)]
    runs: Runs,

    #[command(flatten)]
    copies: CopyOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let points = options.counts.points(&sizes(options)?, options.offset.0);
    let copies = &options.copies;
    let session = Session::open("copybw", &copies.target, options.size.0, &Extra::default())?;
    copies.run(session, points, false, options.runs.number, |results| text(results, options.sweep.is_some()))
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

/// The bandwidth of each direction or, after a sweep, of each size; and the spread of the times.
fn text(results: &Results, is_sweep: bool) -> String {
    let mut text = results.setup.to_string();
    if !is_sweep {
        for row in &results.rows {
            text.push_str(&bandwidths(results, row));
        }
    }
    let _ = write!(text, "\n{}", table(results));
    text
}

/// Lines that scripts search for, `write BW: 1234.56MB/s`, where MB are MiB.
fn bandwidths(results: &Results, row: &Row) -> String {
    let lines = results.methods.iter().enumerate().map(|(method, label)| {
        let name = match results.methods.len() {
            1 => String::new(),
            _ => format!("{label}: "),
        };
        let direction = row.point.direction.name();
        match row.bandwidth(method) {
            Some(bandwidth) => format!("{name}{direction} BW: {bandwidth:.2}MB/s\n"),
            None => format!("{name}{direction} BW: FAILED\n"),
        }
    });
    lines.collect()
}

fn table(results: &Results) -> Table {
    let mut names = vec!["Function", "Library", "Size(B)", "Offset(B)", "MiB/s"];
    names.extend(["P0(us)", "P50(us)", "P99(us)"]);
    if results.runs > 1 {
        names.push("Fastest(us)");
    }
    if results.methods.len() > 1 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for row in &results.rows {
        for (method, label) in results.methods.iter().enumerate() {
            let mut cells = vec![
                row.results[method].function.to_owned(),
                label.clone(),
                row.point.size.to_string(),
                row.point.offset.to_string(),
            ];
            match row.times(method) {
                Some(times) => {
                    let bandwidth = row.bandwidth(method).unwrap_or_default();
                    cells.push(format!("{bandwidth:.2}"));
                    cells.extend([times.p0, times.median, times.p99].map(microseconds));
                }
                None => cells.extend(["FAILED", "", "", ""].map(str::to_owned)),
            }
            if results.runs > 1 {
                let fastest = row.results[method].fastest_run;
                cells.push(fastest.map_or(String::new(), microseconds));
            }
            if results.methods.len() > 1 {
                cells.push(ratio(row.ratio(method)));
            }
            table.push(cells);
        }
    }
    table
}
