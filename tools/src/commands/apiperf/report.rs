//! The results as text, JSON, CSV and a chart.
#![forbid(unsafe_code)]

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::measure::{CALLS, LibraryTimes, Results, Row};
use crate::measure::chart::Plot;
use crate::measure::session::Setup;
use crate::measure::stats::Times;
use crate::output::table::Table;
use crate::output::{self, Output};

/// Bars of a histogram.
const BINS: usize = 10;

/// Stars of the longest bar.
const LONGEST_BAR: usize = 50;

/// Means, percentiles, and a histogram of the pins of each size.
fn text(results: &Results) -> String {
    let mut text = results.setup.to_string();
    let means = table(results, true, |library, call| microseconds(library.calls[call].mean));
    let percentiles = table(results, false, |library, call| {
        let Times { p0, median, p99, .. } = library.calls[call];
        [p0, median, p99].map(microseconds).join(" / ")
    });
    let _ = write!(text, "\nMean\n{means}\nP0 / P50 / P99\n{percentiles}");
    if results.runs > 1 {
        let fastest = table(results, false, |library, call| {
            [library.calls[call].median, library.fastest_run[call]].map(microseconds).join(" / ")
        });
        let _ = write!(text, "\nP50 of the median and of the fastest run\n{fastest}");
    }
    for (row, library, label) in each(results) {
        let _ = writeln!(text, "\n{label}: histogram of pin, {} bytes (us)", row.size);
        text.push_str(&histogram(&row.libraries[library].pins));
    }
    text
}

/// The calls of each size and library; with ratios, those of the second library's medians below it.
fn table(results: &Results, has_ratios: bool, cell: impl Fn(&LibraryTimes, usize) -> String) -> Table {
    let names = ["Size(B)", "Library"].map(str::to_owned);
    let mut table = Table::new(names.into_iter().chain(CALLS.map(|call| format!("{call}.Time(us)"))));
    let mut push = |row: &Row, name: &str, cell: &dyn Fn(usize) -> String| {
        let names = [row.size.to_string(), name.to_owned()];
        table.push(names.into_iter().chain((0..CALLS.len()).map(cell)).collect());
    };
    for (row, library, label) in each(results) {
        push(row, label, &|call| cell(&row.libraries[library], call));
        if has_ratios && library > 0 {
            push(row, "P50 ratio", &|call| output::ratio(ratio(row, library, call)));
        }
    }
    table
}

/// The median divided by the first library's.
fn ratio(row: &Row, library: usize, call: usize) -> Option<f64> {
    let median = |library: usize| row.libraries[library].calls[call].median;
    (library > 0 && median(0) > 0.0).then(|| median(library) / median(0))
}

/// One line per range of time, ten equal ones from the shortest to the longest sample.
fn histogram(samples: &[f64]) -> String {
    let shortest = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = samples.iter().copied().fold(0.0, f64::max);
    let width = (longest - shortest) / BINS as f64;
    let mut counts = [0_usize; BINS];
    for sample in samples {
        // If all samples are equal, the width is 0.
        let bin = match width > 0.0 {
            true => ((sample - shortest) / width) as usize,
            false => 0,
        };
        counts[bin.min(BINS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let lines = counts.iter().enumerate().map(|(bin, &count)| {
        let edge = |bin: usize| (shortest + width * bin as f64) / 1000.0;
        let bar = "*".repeat((count * LONGEST_BAR).div_ceil(most));
        let line = format!("[{:10.3} - {:10.3}] {count:6} {bar}", edge(bin), edge(bin + 1));
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// One call of one library, as a row of CSV.
#[derive(Serialize)]
struct Record<'a> {
    library: &'a str,
    call: &'a str,
    size_bytes: usize,
    samples: usize,
    mean_ns: f64,
    p0_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// The smallest P50 of the runs.
    fastest_run_ns: f64,
    /// The median divided by the first library's.
    ratio: Option<f64>,
}

/// Everything, as one JSON document.
#[derive(Serialize)]
struct Document<'a> {
    setup: &'a Setup,
    /// Independent runs; with several, each record is that of the run with the median P50.
    runs: u32,
    interrupted: bool,
    records: &'a [Record<'a>],
    pins: Vec<Pins<'a>>,
}

/// The time of each pin.
#[derive(Serialize)]
struct Pins<'a> {
    library: &'a str,
    size_bytes: usize,
    ns: &'a [f64],
}

pub(super) fn write(results: &Results, output: &Output, plot: &Plot) -> Result<()> {
    let records = records(results);
    let pins = each(results).map(|(row, library, label)| Pins {
        library: label,
        size_bytes: row.size,
        ns: &row.libraries[library].pins,
    });
    let document = Document {
        setup: &results.setup,
        runs: results.runs,
        interrupted: results.interrupted,
        records: &records,
        pins: pins.collect(),
    };
    output.write(|| text(results), &document, &records)?;
    plot.draw(&document)
}

fn records(results: &Results) -> Vec<Record<'_>> {
    let of_library = |(row, library, label)| {
        let row: &Row = row;
        let times: &LibraryTimes = &row.libraries[library];
        let fastest = times.fastest_run;
        times.calls.iter().enumerate().map(move |(call, times)| Record {
            library: label,
            call: CALLS[call],
            size_bytes: row.size,
            samples: times.samples,
            mean_ns: times.mean,
            p0_ns: times.p0,
            p50_ns: times.median,
            p99_ns: times.p99,
            fastest_run_ns: fastest[call],
            ratio: ratio(row, library, call),
        })
    };
    each(results).flat_map(of_library).collect()
}

/// Each size with each library, as its index and its label.
fn each(results: &Results) -> impl Iterator<Item = (&Row, usize, &str)> {
    results.rows.iter().flat_map(|row| {
        let libraries = results.setup.libraries.iter().enumerate();
        libraries.map(move |(library, info)| (row, library, info.label.as_str()))
    })
}

fn microseconds(ns: f64) -> String {
    format!("{:.3}", ns / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_the_histogram() {
        let samples: Vec<f64> = (0..100).map(|i| f64::from(i) * 1000.0).collect();
        let text = histogram(&samples);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), BINS);
        for line in lines {
            assert_eq!(line.split_once(']').unwrap().1.split_whitespace().next(), Some("10"));
        }
        assert!(histogram(&[5.0, 5.0]).lines().next().unwrap().contains(" 2 *"));
    }
}
