//! `gdrcopy compare`: copies of many sizes and alignments through several libraries and other methods,
//! side by side in one process.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::copies;
use crate::measure::floor::LINE;
use crate::measure::method::{Kind, WARM_UP};
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Direction, Point};
use crate::measure::results::{Record, Results};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::output::Usage;
use crate::output::table::Table;
use crate::system::bytes::Bytes;

/// The options of `gdrcopy compare`.
///
/// All methods are compared with the first library.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy compare --cpu 4 --with memcpy,cumemcpy --json results.json --plot compare.svg
  gdrcopy compare --cpu 4-11 --lib new=build/lib/libgdrapi.so.2 --lib old=/usr/lib/libgdrapi.so.2 --sizes 4,64,1K")]
pub(crate) struct Options {
    /// Other methods, memcpy or cumemcpy
    ///
    /// memcpy is the C library's on the mapping; cumemcpy is cuMemcpyHtoD and cuMemcpyDtoH, from and to pinned memory.
    #[arg(long = "with", value_enum, value_delimiter = ',', hide_possible_values = true, value_name = "LIST")]
    others: Vec<Kind>,

    /// Bytes, with K, M or G [default: 37, up to 16M]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        hide_default_value = true,
        default_value = "1,2,3,4,5,7,8,12,15,16,24,32,33,48,63,64,65,100,128,200,256,512,1000,1K,2K,4K,5000,8K,16K,\
                         32K,64K,128K,256K,512K,1M,4M,16M"
    )]
    sizes: Vec<Bytes>,

    /// Device bytes past a line [default: 7, up to 63]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        hide_default_value = true,
        default_value = "0,1,4,8,20,32,63"
    )]
    alignments: Vec<Bytes>,

    /// Time for more than 21 samples each
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    budget: u64,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let points = points(options);
    if points.is_empty() {
        return Err(Usage("--sizes: nothing to measure".into()).into());
    }
    let len = points.iter().map(Point::device_len).max().unwrap_or(0);
    let session = options.shared.open("compare", len.max(WARM_UP), &options.others)?;

    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points.len() as f64);
    let points = points.into_iter().map(|point| (point, share)).collect();
    copies::run(&options.shared, &session, &Sweep { points, cold_device: false }, text)
}

/// The points in the order in which they are measured, with sizes ascending innermost.
fn points(options: &Options) -> Vec<Point> {
    let mut sizes: Vec<_> = options.sizes.iter().map(|bytes| bytes.0).collect();
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let mut alignments: Vec<_> = options.alignments.iter().map(|bytes| bytes.0 % LINE).collect();
    alignments.sort_unstable();
    alignments.dedup();
    let mut points = Vec::new();
    for direction in Direction::BOTH {
        for &alignment in &alignments {
            for &size in &sizes {
                points.push(Point::spread(direction, size, alignment));
            }
        }
    }
    points
}

/// For each direction and method, the times of sizes and alignments, and their ratios to the first method.
fn text(results: &Results) -> String {
    let mut text = String::new();
    let methods = results.methods();
    for direction in Direction::BOTH {
        let title = direction.name();
        if results.of(methods[0], direction).is_empty() {
            continue;
        }
        for method in &methods {
            let _ = write!(text, "\n{title}, ns: {method}\n{}", matrix(&results.of(method, direction), time));
        }
        for method in &methods[1..] {
            let ratios = matrix(&results.of(method, direction), ratio);
            let _ = write!(text, "\n{title}, time / time of {}: {method}\n{ratios}", methods[0]);
        }
        for method in &methods[results.setup.libraries.len()..] {
            let from = faster_from(&results.of(method, direction));
            let _ = writeln!(text, "\n{title}: {method} is faster than {} from: {from}", methods[0]);
        }
    }
    text
}

/// A table of sizes and device alignments.
fn matrix(records: &[&Record], cell: impl Fn(&Record) -> String) -> Table {
    let mut alignments: Vec<_> = records.iter().map(|record| record.point.alignment).collect();
    alignments.dedup();
    let mut names = vec!["size \\ alignment".to_owned()];
    names.extend(alignments.iter().map(usize::to_string));
    let mut table = Table::new(names);
    for first in records {
        if first.point.alignment != alignments[0] {
            break;
        }
        let mut cells = vec![Bytes(first.point.size).to_string()];
        let mut row = records.to_vec();
        row.retain(|record| record.point.size == first.point.size);
        cells.extend(row.into_iter().map(&cell));
        // Interrupted before.
        cells.resize(alignments.len() + 1, String::new());
        table.push(cells);
    }
    table
}

/// The median, or why there is none.
fn time(record: &Record) -> String {
    match record.times {
        Some(times) if times.median < 100.0 => format!("{:.1}", times.median),
        Some(times) => format!("{:.0}", times.median),
        None => record.reason().into(),
    }
}

fn ratio(record: &Record) -> String {
    match record.ratio {
        Some(ratio) => format!("{ratio:.2}"),
        None => String::new(),
    }
}

/// The size from which on a method is faster than the first library, at the first alignment.
fn faster_from(records: &[&Record]) -> String {
    let mut from = "no size measured".to_owned();
    for record in records.iter().rev() {
        if record.point.alignment != records[0].point.alignment {
            continue;
        }
        match record.ratio {
            Some(ratio) if ratio < 1.0 => from = Bytes(record.point.size).to_string(),
            _ => break,
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn default_sweep_is_the_documented_one() {
        let options = Cli::parse_from(["compare", "--lib", "a.so"]).options;
        let points = points(&options);
        assert_eq!(points.len(), 2 * 7 * 37);
        let column = &points[7 * 37..][..37];
        assert!(column.is_sorted_by(|a, b| a.size < b.size));
        assert_eq!((column[0].size, column[36].size), (1, 16 << 20));
        assert!(column.iter().all(|point| point.direction == Direction::Read));
        let alignments: Vec<_> = points.iter().step_by(37).map(|point| point.alignment).collect();
        assert_eq!(alignments[..7], [0, 1, 4, 8, 20, 32, 63]);
    }
}
