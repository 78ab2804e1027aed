//! Results for people and for other programs.
#![forbid(unsafe_code)]

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::Place;
use super::game::{Player, Results};
use crate::records::lines_of_csv;
use crate::session::Setup;
use crate::table::Table;

/// Everything, as one JSON document.
#[derive(Serialize)]
struct Document<'a> {
    setup: &'a Setup,
    verified: bool,
    interrupted: bool,
    records: Vec<Record<'a>>,
}

/// One library: a line of CSV.
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
    /// Words of data that did not arrive as they were sent.
    wrong_words: u64,
    /// How many times as long as the first library's median this one takes.
    ratio: Option<f64>,
}

/// Latencies of whole rounds, in a table.
pub(super) fn text(results: &Results) -> String {
    let mut text = results.setup.to_string();
    let rules = &results.rules;
    let layout = &rules.layout;
    let (producer, consumer) = match rules.gpu_produces {
        false => ("CPU", "GPU"),
        true => ("GPU", "CPU"),
    };
    let _ = writeln!(
        text,
        "the {producer} produces {} bytes in {}, the {consumer} consumes them; {} blocks of {} threads",
        layout.size,
        name(layout.data),
        rules.blocks,
        rules.threads
    );
    let _ = writeln!(
        text,
        "GPU flag in {}, CPU flag in {}; {} iterations",
        name(layout.gpu_flag),
        name(layout.cpu_flag),
        rules.iterations
    );
    let mut names = vec!["Round trip", "P0.Time(us)", "P50.Time(us)", "P99.Time(us)"];
    if results.players.len() > 1 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for player in &results.players {
        let mut cells = vec![player.label.clone()];
        match &player.times {
            Some(times) => {
                cells.extend([times.p0, times.median, times.p99].map(microseconds));
            }
            None => cells.extend([const { String::new() }; 3]),
        }
        if results.players.len() > 1 {
            let ratio = ratio(results, player);
            cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
        }
        table.push(cells);
    }
    let _ = write!(text, "\n{table}");
    text
}

/// The results as one JSON document.
///
/// # Errors
/// None that can be expected.
pub(super) fn json(results: &Results) -> Result<String> {
    let document = Document {
        setup: &results.setup,
        verified: results.rules.verify,
        interrupted: results.interrupted,
        records: records(results),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The results as lines of CSV.
///
/// # Errors
/// None that can be expected.
pub(super) fn csv(results: &Results) -> Result<String> {
    lines_of_csv(records(results))
}

fn records<'a>(results: &'a Results) -> Vec<Record<'a>> {
    let rules = &results.rules;
    let record = |player: &'a Player| {
        let Player {
            label,
            times,
            wrong,
        } = player;
        Record {
            library: label,
            producer: if rules.gpu_produces { "gpu" } else { "cpu" },
            size_bytes: rules.layout.size,
            blocks: rules.blocks,
            threads: rules.threads,
            gpu_flag: rules.layout.gpu_flag,
            cpu_flag: rules.layout.cpu_flag,
            data: rules.layout.data,
            iterations: times.map_or(0, |times| times.samples),
            p0_ns: times.map(|times| times.p0),
            p50_ns: times.map(|times| times.median),
            p99_ns: times.map(|times| times.p99),
            mean_ns: times.map(|times| times.mean),
            wrong_words: *wrong,
            ratio: ratio(results, player),
        }
    };
    results.players.iter().map(record).collect()
}

/// How many times as long as the first library's median this one's is.
fn ratio(results: &Results, player: &Player) -> Option<f64> {
    let first = results.players[0].times?;
    (results.players.len() > 1).then_some(player.times?.median / first.median)
}

fn name(place: Place) -> &'static str {
    match place {
        Place::GpuMem => "gpumem",
        Place::HostMem => "hostmem",
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.4}", ns / 1000.0)
}
