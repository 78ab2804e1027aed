//! The results of a sweep, for other programs and as a chart.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::{Copy, Direction, Results, Row, mib_per_second};
use crate::chart::{self, Curve, Panel};
use crate::records::lines_of_csv;
use crate::stats::Times;

/// Everything, as one JSON document.
#[derive(Serialize)]
struct Document<'a> {
    setup: &'a crate::session::Setup,
    verified: bool,
    interrupted: bool,
    /// Nanoseconds of one plain 4-byte load from the mapping.
    load_ns: &'a Times,
    records: Vec<Record<'a>>,
}

/// One method at one copy: a line of CSV.
#[derive(Serialize)]
struct Record<'a> {
    method: &'a str,
    function: &'a str,
    direction: Direction,
    size_bytes: usize,
    offset_bytes: usize,
    iterations: usize,
    samples: Option<usize>,
    p0_ns: Option<f64>,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    mean_ns: Option<f64>,
    bandwidth_mib_per_s: Option<f64>,
    /// How long it takes at least.
    floor_ns: Option<f64>,
    /// How many times as long as the first library's median this one takes.
    ratio: Option<f64>,
    /// What was copied wrong.
    error: Option<&'a str>,
}

/// The results as one JSON document.
///
/// # Errors
/// None that can be expected.
pub fn json(results: &Results) -> Result<String> {
    let document = Document {
        setup: &results.setup,
        verified: results.verified,
        interrupted: results.interrupted,
        load_ns: &results.load,
        records: records(results),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The results as lines of CSV.
///
/// # Errors
/// None that can be expected.
pub fn csv(results: &Results) -> Result<String> {
    lines_of_csv(records(results))
}

fn records(results: &Results) -> Vec<Record<'_>> {
    let of_row = |row| (0..results.methods.len()).map(move |method| record(results, row, method));
    results.rows.iter().flat_map(of_row).collect()
}

fn record<'a>(results: &'a Results, row: &'a Row, method: usize) -> Record<'a> {
    let result = &row.results[method];
    let times = row.times(method);
    Record {
        method: &results.methods[method],
        function: result.function,
        direction: row.copy.direction,
        size_bytes: row.copy.size,
        offset_bytes: row.copy.offset,
        iterations: row.iterations,
        samples: times.map(|times| times.samples),
        p0_ns: times.map(|times| times.p0),
        p50_ns: times.map(|times| times.median),
        p99_ns: times.map(|times| times.p99),
        mean_ns: times.map(|times| times.mean),
        bandwidth_mib_per_s: row.bandwidth(method),
        floor_ns: results.floor(row.copy),
        ratio: row.ratio(method),
        error: result.outcome.wrong.as_deref(),
    }
}

/// Draws latency and bandwidth over size to an SVG file.
///
/// # Errors
/// There is nothing to draw, or the file cannot be written.
pub fn plot(results: &Results, file: &Path) -> Result<()> {
    let latency = curves(
        results,
        |row, method| Some(row.times(method)?.median),
        |copy| results.floor(copy),
    );
    // By the median, too: means would tell of interruptions.
    let bandwidth = curves(
        results,
        |row, method| mib_per_second(row.copy.size, row.times(method)?.median),
        |copy| mib_per_second(copy.size, results.floor(copy)?),
    );
    let panels =
        [("ns a call, median", latency), ("MiB/s, median", bandwidth)].map(|(quantity, curves)| {
            Panel {
                quantity: quantity.into(),
                curves,
            }
        });
    chart::write(file, &results.setup.title(), &panels)
}

/// One curve a method and direction, and the limit of reads.
fn curves(
    results: &Results,
    value: impl Fn(&Row, usize) -> Option<f64>,
    limit: impl Fn(Copy) -> Option<f64>,
) -> Vec<Curve> {
    let mut curves = Vec::new();
    for direction in Direction::BOTH {
        for (method, label) in results.methods.iter().enumerate() {
            let points = points(results, direction, |row| value(row, method));
            let label = format!("{label}, {}", direction.name());
            curves.push(Curve {
                label,
                points,
                is_limit: false,
            });
        }
    }
    curves.push(Curve {
        label: "floor of reads: round trips".into(),
        points: points(results, Direction::Read, |row| limit(row.copy)),
        is_limit: true,
    });
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn points(
    results: &Results,
    direction: Direction,
    value: impl Fn(&Row) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let rows = results
        .rows
        .iter()
        .filter(|row| row.copy.direction == direction);
    // Logarithmic axes have no 0.
    rows.filter_map(|row| {
        Some((
            row.copy.size as f64,
            value(row).filter(|&value| value > 0.0)?,
        ))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::sweep::tests::{results, timed, wrong};
    use super::*;

    #[test]
    fn json_and_csv_hold_the_same_numbers() {
        let results = results([timed(2000.0), timed(3000.0)]);
        let document: serde_json::Value = serde_json::from_str(&json(&results).unwrap()).unwrap();
        let record = &document["records"][1];
        assert_eq!(record["method"], "b");
        assert_eq!(record["direction"], "read");
        assert_eq!(record["p50_ns"], 3000.0);
        assert_eq!(record["ratio"], 1.5);
        assert_eq!(record["floor_ns"], 2000.0);
        assert!(record["error"].is_null());
        let csv = csv(&results).unwrap();
        let mut lines = csv.lines();
        let names: Vec<_> = lines.next().unwrap().split(',').collect();
        let cells: Vec<_> = lines.nth(1).unwrap().split(',').collect();
        let cell = |name| cells[names.iter().position(|&other| other == name).unwrap()];
        assert_eq!(cell("p50_ns"), "3000.0");
        assert_eq!(cell("ratio"), "1.5");
        assert_eq!(cell("error"), "");
    }

    #[test]
    fn failures_are_not_drawn_and_the_floor_is() {
        let results = results([timed(2000.0), wrong("byte 1")]);
        let value = |row: &Row, method| Some(row.times(method)?.median);
        let labels: Vec<_> = curves(&results, value, |copy| results.floor(copy))
            .into_iter()
            .map(|curve| (curve.label, curve.is_limit))
            .collect();
        let expected = [("a, read", false), ("floor of reads: round trips", true)];
        assert_eq!(
            labels,
            expected.map(|(label, limit)| (label.to_owned(), limit))
        );
    }
}
