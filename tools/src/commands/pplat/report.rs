//! The results as text, JSON and CSV.
#![forbid(unsafe_code)]

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::options::{Options, Place};
use super::run::{LibraryResult, Results};
use crate::measure::session::Setup;
use crate::output::table::Table;
use crate::output::{self, microseconds, name};

/// Everything, as one JSON document.
#[derive(Serialize)]
struct Document<'a> {
    setup: &'a Setup,
    verified: bool,
    interrupted: bool,
    records: &'a [Record<'a>],
}

/// One library, as a row of CSV.
#[derive(Serialize)]
struct Record<'a> {
    library: &'a str,
    /// Who writes the data.
    producer: &'a str,
    size_bytes: usize,
    blocks: u32,
    threads: u32,
    gpu_flag: Place,
    cpu_flag: Place,
    data: Place,
    iterations: usize,
    p0_ns: Option<f64>,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    mean_ns: Option<f64>,
    /// Words of data that did not arrive as sent.
    wrong_words: u64,
    /// The median divided by the first library's.
    ratio: Option<f64>,
}

/// Latencies of whole rounds, in a table.
fn text(results: &Results, options: &Options) -> String {
    let mut text = results.setup.to_string();
    let (producer, consumer) = match options.gpu_produces {
        false => ("CPU", "GPU"),
        true => ("GPU", "CPU"),
    };
    let _ = writeln!(
        text,
        "the {producer} produces {} bytes in {}, the {consumer} consumes them; {} blocks of {} threads",
        options.size.0,
        name(options.data),
        options.blocks,
        options.threads
    );
    let _ = writeln!(
        text,
        "GPU flag in {}, CPU flag in {}; {} iterations",
        name(options.gpu_flag),
        name(options.cpu_flag),
        options.iterations
    );
    let mut names = vec!["Round trip", "P0.Time(us)", "P50.Time(us)", "P99.Time(us)"];
    if results.libraries.len() > 1 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for library in &results.libraries {
        let mut cells = vec![library.label.clone()];
        match &library.times {
            Some(times) => {
                cells.extend([times.p0, times.median, times.p99].map(microseconds));
            }
            None => cells.extend([const { String::new() }; 3]),
        }
        if results.libraries.len() > 1 {
            cells.push(output::ratio(ratio(results, library)));
        }
        table.push(cells);
    }
    let _ = write!(text, "\n{table}");
    text
}

pub(super) fn write(results: &Results, options: &Options) -> Result<()> {
    let records = records(results, options);
    let document = Document {
        setup: &results.setup,
        verified: options.target.verify,
        interrupted: results.interrupted,
        records: &records,
    };
    options.output.write(|| text(results, options), &document, &records)
}

fn records<'a>(results: &'a Results, options: &Options) -> Vec<Record<'a>> {
    let record = |library: &'a LibraryResult| {
        let LibraryResult { label, times, wrong } = library;
        Record {
            library: label,
            producer: if options.gpu_produces { "gpu" } else { "cpu" },
            size_bytes: options.size.0,
            blocks: options.blocks,
            threads: options.threads,
            gpu_flag: options.gpu_flag,
            cpu_flag: options.cpu_flag,
            data: options.data,
            iterations: times.map_or(0, |times| times.samples),
            p0_ns: times.map(|times| times.p0),
            p50_ns: times.map(|times| times.median),
            p99_ns: times.map(|times| times.p99),
            mean_ns: times.map(|times| times.mean),
            wrong_words: *wrong,
            ratio: ratio(results, library),
        }
    };
    results.libraries.iter().map(record).collect()
}

/// The median divided by the first library's.
fn ratio(results: &Results, library: &LibraryResult) -> Option<f64> {
    let first = results.libraries[0].times?;
    (results.libraries.len() > 1).then_some(library.times?.median / first.median)
}
