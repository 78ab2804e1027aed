//! `gdrcopy copylat`: latency of copies of 1, 2, 4, 8, … bytes.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{CopyOptions, Counts, Runs};
use crate::measure::floor;
use crate::measure::method::Kind;
use crate::measure::plan::{Direction, powers_of_two};
use crate::measure::results::{Results, Row};
use crate::measure::session::{Extra, Session};
use crate::output::table::Table;
use crate::output::{Usage, microseconds, ratio};
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy copylat --cumemcpy --plot copylat.svg
  gdrcopy copylat --cpu 4 --lib new=build/lib/libgdrapi.so.2 --lib old=/usr/lib/libgdrapi.so.2")]
pub(crate) struct Options {
    /// Size of the GPU buffer, and of the largest copy
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    size: Bytes,

    #[command(flatten)]
    counts: Counts,

    /// Also time CUDA's own copies
    #[arg(short = 'c', long)]
    cumemcpy: bool,

    /// Have the GPU write the memory before each copy, which removes it from the CPU's caches; for
    /// cached mappings only
    #[arg(short = 'C', long)]
    cold_device: bool,

    #[command(flatten)]
    runs: Runs,

    #[command(flatten)]
    copies: CopyOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (size, copies) = (options.size.0, &options.copies);
    if size == 0 {
        return Err(Usage("--size must be at least 1".into()).into());
    }
    let extra = Extra { others: Vec::from_iter(options.cumemcpy.then_some(Kind::CuMemcpy)), ..Extra::default() };
    let session = Session::open("copylat", &copies.target, size, &extra)?;
    let mapping_type = &session.setup.libraries[0].mapping_type;
    if options.cold_device && mapping_type != "cached" {
        return Err(Usage(format!("-C is for cached mappings: the CPU does not cache a {mapping_type} one")).into());
    }
    let sizes: Vec<_> = powers_of_two(size).collect();
    let points = options.counts.points(&sizes, 0);
    copies.run(session, points, options.cold_device, options.runs.number, text)
}

/// One table per direction, and one for CUDA's own copies below it.
fn text(results: &Results) -> String {
    let mut text = results.setup.to_string();
    let _ = match floor::round_trip(&results.load) {
        Some(ns) => writeln!(text, "one round trip to the GPU: {} us", microseconds(ns)),
        None => writeln!(text, "loads come from a cache: there is no floor"),
    };
    for direction in Direction::BOTH {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.point.direction == direction).collect();
        let Some(first) = rows.first() else {
            continue;
        };
        let _ = write!(text, "\n{}: {} calls each size", direction.name(), first.iterations);
        let libraries = results.setup.libraries.len();
        for methods in [0..libraries, libraries..results.methods.len()] {
            if !methods.is_empty() {
                let _ = write!(text, "\n{}", table(results, &rows, methods));
            }
        }
    }
    text
}

/// One line per size; methods that call the same functions are side by side. The ratio is that of the
/// last one to the first library.
fn table(results: &Results, rows: &[&Row], methods: Range<usize>) -> Table {
    let has_ratio = methods.end > 1;
    let has_floor = methods.start == 0 && rows.iter().any(|row| results.floor(&row.point).is_some());
    let mut names = vec!["Test".to_owned(), "Size(B)".to_owned()];
    for label in &results.methods[methods.clone()] {
        let prefix = match methods.len() {
            1 => String::new(),
            _ => format!("{label} "),
        };
        names.extend(["P50", "P0", "P99"].map(|name| format!("{prefix}{name}.Time(us)")));
        names.extend((results.runs > 1).then(|| format!("{prefix}Fastest.Time(us)")));
    }
    names.extend(has_ratio.then(|| "Ratio".into()));
    names.extend(has_floor.then(|| "Floor(us)".into()));

    let mut table = Table::new(names);
    for row in rows {
        let function = row.results[methods.start].function;
        let mut cells = vec![function.to_owned(), row.point.size.to_string()];
        for method in methods.clone() {
            cells.extend(times(row, method));
            if results.runs > 1 {
                let fastest = row.results[method].fastest_run;
                cells.push(fastest.map_or(String::new(), microseconds));
            }
        }
        if has_ratio {
            cells.push(ratio(row.ratio(methods.end - 1)));
        }
        if has_floor {
            let floor = results.floor(&row.point);
            cells.push(floor.map_or(String::new(), microseconds));
        }
        table.push(cells);
    }
    table
}

/// Median, smallest and P99.
fn times(row: &Row, method: usize) -> [String; 3] {
    match row.times(method) {
        Some(times) => [times.median, times.p0, times.p99].map(microseconds),
        None => ["FAILED", "", ""].map(str::to_owned),
    }
}
