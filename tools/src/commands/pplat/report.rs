//! The results as text and JSON.
#![forbid(unsafe_code)]

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::options::{Options, Place};
use super::run::Rounds;
use crate::measure::results::Document;
use crate::measure::session::Session;
use crate::measure::stats::Times;
use crate::output::table::Table;
use crate::output::{name, two_decimals};

/// One library.
#[derive(Serialize)]
struct Record<'a> {
    library: &'a str,
    /// Who writes the data.
    producer: &'static str,
    size_bytes: usize,
    blocks: u32,
    threads: u32,
    gpu_flag: Place,
    cpu_flag: Place,
    data: Place,
    #[serde(flatten)]
    times: Option<Times>,
    /// Words of data that did not arrive as sent.
    wrong_words: u64,
    /// The median divided by the first library's.
    ratio: Option<f64>,
}

pub(super) fn write(session: &Session, all: &[Rounds], options: &Options) -> Result<()> {
    let mut records: Vec<Record> = Vec::new();
    for (method, rounds) in session.methods.iter().zip(all) {
        // Ctrl-C can come before the first round.
        let times = if rounds.samples.is_empty() { None } else { Some(Times::new(rounds.samples.clone())) };
        let ratio = match (&times, records.first()) {
            (Some(times), Some(Record { times: Some(first), .. })) => times.ratio(first),
            _ => None,
        };
        records.push(Record {
            library: &method.label,
            producer: if options.gpu_produces { "gpu" } else { "cpu" },
            size_bytes: options.size.0,
            blocks: options.blocks,
            threads: options.threads,
            gpu_flag: options.gpu_flag,
            cpu_flag: options.cpu_flag,
            data: options.data,
            times,
            wrong_words: rounds.wrong,
            ratio,
        });
    }
    let document = Document {
        setup: &session.setup,
        verified: options.target.verify,
        interrupted: session.interrupt.requested(),
        copies: None,
        records,
    };
    options.output.write(|| format!("{}{}", session.setup, text(&document.records, options)), &document)
}

/// Latencies of whole rounds, in a table.
fn text(records: &[Record], options: &Options) -> String {
    let (producer, consumer) = if options.gpu_produces { ("GPU", "CPU") } else { ("CPU", "GPU") };
    let Options { size, blocks, threads, iterations, .. } = options;
    let [data, gpu_flag, cpu_flag] = [options.data, options.gpu_flag, options.cpu_flag].map(name);
    let mut text = format!(
        "the {producer} produces {} bytes in {data}, the {consumer} consumes them; {blocks} blocks of {threads} threads\n\
         GPU flag in {gpu_flag}, CPU flag in {cpu_flag}; {iterations} iterations\n",
        size.0
    );
    let mut names = vec!["Round trip"];
    names.extend(Times::NAMES);
    if records.len() > 1 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for record in records {
        let mut cells = vec![record.library.to_owned()];
        match &record.times {
            Some(times) => cells.extend(times.cells()),
            None => cells.extend([const { String::new() }; 3]),
        }
        if records.len() > 1 {
            cells.push(two_decimals(record.ratio));
        }
        table.push(cells);
    }
    let _ = write!(text, "\n{table}");
    text
}
