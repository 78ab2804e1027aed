//! The common part of the tools that measure copies.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::measure::floor;
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Cold, Direction, Point};
use crate::measure::results::{Results, Row};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::Session;
use crate::measure::stats::Times;
use crate::output::table::Table;
use crate::output::{self, microseconds, two_decimals};

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
                let point = |&size| (Point::fixed(direction, size, offset), Repetitions::Calls(calls));
                points.extend(sizes.iter().map(point));
            }
        }
        points
    }
}

/// Measures, prints the results, and returns the exit status, which is 1 if a byte was copied wrong.
pub(super) fn run(
    options: &SharedOptions,
    session: &Session,
    points: Vec<(Point, Repetitions)>,
    cold: Cold,
    text: impl FnOnce(&Results) -> String,
) -> Result<ExitCode> {
    let results = Sweep { points, verify: options.target.verify, cold }.run(session)?;
    let tool = &results.setup.tool;
    if results.rows.is_empty() && results.interrupted {
        return Ok(output::interrupted_early(tool));
    }
    results.write(&options.output, &options.plot, || text(&results))?;
    let mut status = output::exit_status(tool, results.interrupted);
    for failure in results.failures() {
        eprintln!("gdrcopy {tool}: wrong copy: {failure}");
        status = ExitCode::FAILURE;
    }
    Ok(status)
}

/// A table for each direction and method, below the round trip that limits reads.
pub(super) fn text(results: &Results) -> String {
    let mut text = match floor::round_trip(&results.load) {
        Some(ns) => format!("one round trip to the GPU: {} us\n", microseconds(ns)),
        None => "loads come from a cache: there is no floor\n".into(),
    };
    for direction in Direction::BOTH {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.point.direction == direction).collect();
        let Some(first) = rows.first() else {
            continue;
        };
        for (method, label) in results.methods.iter().enumerate() {
            let Row { point, iterations, .. } = first;
            let _ = writeln!(
                text,
                "\n{}, {label}: {iterations} calls each size, at offset {}",
                direction.name(),
                point.offset
            );
            let _ = write!(text, "{}", table(&rows, method));
        }
    }
    text
}

/// One line per size. A method after the first has ratios to that.
pub(super) fn table(rows: &[&Row], method: usize) -> Table {
    let mut names = vec!["Test", "Size(B)"];
    names.extend(Times::NAMES);
    names.push("MiB/s");
    if method > 0 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for row in rows {
        let mut cells = vec![row.results[method].function.to_owned(), row.point.size.to_string()];
        match row.times(method) {
            Some(times) => cells.extend(times.cells()),
            None => cells.extend([row.results[method].outcome.reason(), "", ""].map(str::to_owned)),
        }
        cells.push(two_decimals(row.bandwidth(method)));
        if method > 0 {
            cells.push(two_decimals(row.ratio(method)));
        }
        table.push(cells);
    }
    table
}
