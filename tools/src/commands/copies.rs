//! `gdrcopy copybw` measures copies of one size, and `gdrcopy copylat` those of 1, 2, 4, 8, … bytes.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::measure::method::Kind;
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Direction, Point, powers_of_two};
use crate::measure::results::{self, RATIO, Record, Results, TIMES, table};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::Session;
use crate::output::{self, Usage};
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy copybw --cpu 4
  gdrcopy copybw --size 16M --copy-size 1M --offset 64K")]
pub(crate) struct Copybw {
    /// Size of the GPU buffer
    #[arg(short, long, default_value = "131072", value_name = "BYTES")]
    size: Bytes,

    /// Size of each copy [default: to the buffer's end]
    #[arg(short, long, value_name = "BYTES")]
    copy_size: Option<Bytes>,

    /// Where in the buffer copies start
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    offset: Bytes,

    #[command(flatten)]
    counts: Counts,

    #[command(flatten)]
    shared: SharedOptions,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy copylat --cumemcpy --json copylat.json
  gdrcopy copylat --cpu 4 --lib new=build/lib/libgdrapi.so.2 --lib old=/usr/lib/libgdrapi.so.2")]
pub(crate) struct Copylat {
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
    #[arg(short = 'C', long, alias = "cold")]
    cold_device: bool,

    #[command(flatten)]
    shared: SharedOptions,
}

/// How often copies are made.
#[derive(Debug, Args)]
struct Counts {
    /// Writes of each size; 0 for none
    #[arg(short = 'w', long, default_value_t = 10_000, value_name = "N")]
    writes: usize,

    /// Reads of each size; 0 for none
    #[arg(short = 'r', long, default_value_t = 100, value_name = "N")]
    reads: usize,
}

impl Counts {
    /// Returns the points to measure, each with a direction, a size and an offset: all writes, then all reads. The
    /// results have the same order.
    fn points(&self, sizes: &[usize], offset: usize) -> Vec<(Point, Repetitions)> {
        let mut points = Vec::new();
        for (direction, calls) in [(Direction::Write, self.writes), (Direction::Read, self.reads)] {
            if calls > 0 {
                for &size in sizes {
                    points.push((Point::fixed(direction, size, offset), Repetitions::Calls(calls)));
                }
            }
        }
        points
    }
}

pub(crate) fn copybw(options: &Copybw) -> Result<ExitCode> {
    let size = options.size.0;
    let offset = options.offset.0;
    let copy_size = match options.copy_size {
        Some(copy_size) => copy_size.0,
        None => size.saturating_sub(offset),
    };
    if copy_size == 0 || offset + copy_size > size {
        return Err(Usage(format!(
            "copies of {copy_size} bytes at offset {offset} do not fit into a buffer of {size}: see -s, -c and -o"
        ))
        .into());
    }
    let points = options.counts.points(&[copy_size], offset);
    let session = options.shared.open("copybw", size, &[])?;
    let sweep = Sweep { points, cold_device: false };
    run(&options.shared, &session, &sweep, |results| format!("{}{}", bandwidths(results), text(results)))
}

pub(crate) fn copylat(options: &Copylat) -> Result<ExitCode> {
    let size = options.size.0;
    if size == 0 {
        return Err(Usage("--size must be at least 1".into()).into());
    }
    let others: &[_] = if options.cumemcpy { &[Kind::CuMemcpy] } else { &[] };
    let session = options.shared.open("copylat", size, others)?;
    let mapping_type = &session.setup.libraries[0].mapping_type;
    if options.cold_device && *mapping_type != "cached" {
        return Err(Usage(format!("-C is for cached mappings: the CPU does not cache a {mapping_type} one")).into());
    }
    let points = options.counts.points(&powers_of_two(size), 0);
    let sweep = Sweep { points, cold_device: options.cold_device };
    run(&options.shared, &session, &sweep, text)
}

/// Measures, prints the results, and returns the exit status, which is 1 if a byte was copied wrong.
pub(super) fn run(
    options: &SharedOptions,
    session: &Session,
    sweep: &Sweep,
    text: impl FnOnce(&Results) -> String,
) -> Result<ExitCode> {
    let results = sweep.run(session)?;
    let tool = &results.setup.tool;
    if results.records.is_empty() && results.interrupted {
        return Ok(output::interrupted_early(tool));
    }
    let load = match results::round_trip(&results.load) {
        Some(ns) => format!("one round trip to the GPU: {ns:.0} ns"),
        None => "loads come from a cache, not from the GPU".into(),
    };
    options.output.write(|| format!("{}{load}\n{}", results.setup, text(&results)), &results)?;
    let mut status = output::exit_status(tool, results.interrupted);
    for failure in results.failures() {
        eprintln!("gdrcopy {tool}: wrong copy: {failure}");
        status = ExitCode::FAILURE;
    }
    Ok(status)
}

/// Returns a table for each direction and method.
pub(super) fn text(results: &Results) -> String {
    let mut columns = vec![("Test", "function"), ("Size(B)", "size_bytes")];
    columns.extend(TIMES);
    columns.extend([("MiB/s", "bandwidth_mib_per_s"), RATIO]);
    let mut text = String::new();
    for direction in Direction::BOTH {
        for method in results.methods() {
            let records = results.of(method, direction);
            let Some(first) = records.first() else {
                continue;
            };
            let _ = write!(text, "\n{}, {method}, at offset {}", direction.name(), first.point.offset);
            if records.iter().all(|record| record.iterations == first.iterations) {
                let _ = write!(text, ": {} calls each size", first.iterations);
            }
            let _ = write!(text, "\n{}", table(&records, &columns));
        }
    }
    text
}

/// Returns lines that scripts search for, such as `write BW: 1234.56MB/s`. As in NVIDIA's copybw, MB are MiB.
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
