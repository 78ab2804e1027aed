//! The common part of the tools that measure copies.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::measure::floor;
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Direction, Point};
use crate::measure::results::{RATIO, Results, TIMES, table};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::Session;
use crate::output;

/// How often copies are made.
#[derive(Debug, Args)]
pub(super) struct Counts {
    /// Number of writes of a size, or 0
    #[arg(short = 'w', long, default_value_t = 10_000, value_name = "N")]
    writes: usize,

    /// Number of reads of a size, or 0
    #[arg(short = 'r', long, default_value_t = 100, value_name = "N")]
    reads: usize,
}

impl Counts {
    /// All writes, then all reads.
    pub(super) fn points(&self, sizes: &[usize], offset: usize) -> Vec<(Point, Repetitions)> {
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
    options.output.write(|| format!("{}{}{}", results.setup, round_trip(&results), text(&results)), &results)?;
    options.plot.draw(&results)?;
    let mut status = output::exit_status(tool, results.interrupted);
    for failure in results.failures() {
        eprintln!("gdrcopy {tool}: wrong copy: {failure}");
        status = ExitCode::FAILURE;
    }
    Ok(status)
}

/// The limit of reads.
fn round_trip(results: &Results) -> String {
    match floor::round_trip(&results.load) {
        Some(ns) => format!("one round trip to the GPU: {ns:.0} ns\n"),
        None => "loads come from a cache: there is no floor\n".into(),
    }
}

/// A table for each direction and method.
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
            let _ = write!(
                text,
                "\n{}, {method}: {} calls each size, at offset {}\n{}",
                direction.name(),
                first.iterations,
                first.point.offset,
                table(&records, &columns)
            );
        }
    }
    text
}
