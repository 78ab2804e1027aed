//! Results of copies, with derived values, and their records.
#![forbid(unsafe_code)]

use anyhow::Result;
use serde::Serialize;

use super::chart::Plot;
use super::floor;
use super::plan::{Cold, Direction, Point};
use super::session::Setup;
use super::stats::Times;
use crate::output::Output;

/// The results of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) setup: Setup,
    /// True if every byte was checked.
    pub(crate) verified: bool,
    pub(crate) cold: Cold,
    /// The labels of the methods, the libraries first.
    pub(crate) methods: Vec<String>,
    /// One plain 4-byte load from the mapping.
    pub(crate) load: Times,
    /// In the order of the sweep.
    pub(crate) rows: Vec<Row>,
    /// The user has ended it early.
    pub(crate) interrupted: bool,
}

/// A point, and one result per method.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) point: Point,
    /// How often each method made the copy.
    pub(crate) iterations: usize,
    pub(crate) results: Vec<MethodResult>,
}

/// The result of one method at one point.
#[derive(Clone, Debug)]
pub(crate) struct MethodResult {
    pub(crate) function: &'static str,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Every byte was right; nanoseconds per call.
    Timed(Times),
    /// This byte was wrong.
    Wrong(String),
    /// Too slow to be measured.
    LeftOut,
}

impl Outcome {
    /// Why there are no times.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Outcome::Timed(_) => "",
            Outcome::Wrong(_) => "FAILED",
            Outcome::LeftOut => "-",
        }
    }
}

/// Bandwidth of copies of this size that take this long; none if they take no time.
pub(crate) fn mib_per_second(bytes: usize, ns: f64) -> Option<f64> {
    if ns <= 0.0 {
        return None;
    }
    let mib = bytes as f64 / f64::from(1 << 20);
    Some(mib / (ns / 1e9))
}

impl Row {
    /// The times of a method; none if it was not timed, or copied a byte wrong.
    pub(crate) fn times(&self, method: usize) -> Option<&Times> {
        match &self.results[method].outcome {
            Outcome::Timed(times) => Some(times),
            Outcome::Wrong(_) | Outcome::LeftOut => None,
        }
    }

    /// The method's median divided by the first method's.
    pub(crate) fn ratio(&self, method: usize) -> Option<f64> {
        if method == 0 {
            return None;
        }
        self.times(method)?.ratio(self.times(0)?)
    }

    /// MiB/s, from the mean.
    pub(crate) fn bandwidth(&self, method: usize) -> Option<f64> {
        mib_per_second(self.point.size, self.times(method)?.mean)
    }
}

impl Results {
    /// The least nanoseconds of the copy, since reads wait for round trips, and writes are
    /// posted.
    pub(crate) fn floor(&self, point: &Point) -> Option<f64> {
        match point.direction {
            Direction::Read => Some(floor::round_trip(&self.load)? * point.round_trips() as f64),
            Direction::Write => None,
        }
    }

    /// The method's median divided by the floor.
    pub(crate) fn floor_ratio(&self, row: &Row, method: usize) -> Option<f64> {
        Some(row.times(method)?.median / self.floor(&row.point)?)
    }

    /// Descriptions of the copies that were wrong.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for Row { point, results, .. } in &self.rows {
            let Point { size, offset, host_alignment, .. } = point;
            for (number, result) in results.iter().enumerate() {
                let Outcome::Wrong(wrong) = &result.outcome else {
                    continue;
                };
                let host = match host_alignment {
                    0 => String::new(),
                    past => format!(", host {past} past a line"),
                };
                let (method, function) = (&self.methods[number], result.function);
                failures.push(format!("{method}: {function} of {size} bytes at offset {offset}{host}: {wrong}"));
            }
        }
        failures
    }

    /// Prints the results and draws the chart, in the forms that the options ask for.
    pub(crate) fn write(&self, output: &Output, plot: &Plot, text: impl FnOnce() -> String) -> Result<()> {
        let document = Document {
            setup: &self.setup,
            verified: self.verified,
            interrupted: self.interrupted,
            copies: Some(Conditions { cold: self.cold, load: &self.load }),
            records: self.records(),
        };
        output.write(text, &document)?;
        plot.draw(&document)
    }

    pub(super) fn records(&self) -> Vec<Record<'_>> {
        let mut records = Vec::new();
        for row in &self.rows {
            records.extend((0..self.methods.len()).map(|method| self.record(row, method)));
        }
        records
    }

    fn record<'a>(&'a self, row: &'a Row, method: usize) -> Record<'a> {
        let result = &row.results[method];
        let point = &row.point;
        Record {
            method: &self.methods[method],
            function: result.function,
            direction: point.direction,
            size_bytes: point.size,
            offset_bytes: point.offset,
            alignment_bytes: point.alignment(),
            host_alignment_bytes: point.host_alignment,
            lines: point.lines(),
            iterations: row.iterations,
            times: row.times(method),
            bandwidth_mib_per_s: row.bandwidth(method),
            floor_ns: self.floor(point),
            floor_ratio: self.floor_ratio(row, method),
            ratio: row.ratio(method),
            error: match &result.outcome {
                Outcome::Wrong(wrong) => Some(wrong),
                Outcome::Timed(_) | Outcome::LeftOut => None,
            },
        }
    }
}

/// The results of a tool, as one JSON document.
#[derive(Serialize)]
pub(crate) struct Document<'a, Record> {
    pub(crate) setup: &'a Setup,
    /// Every byte was checked.
    pub(crate) verified: bool,
    pub(crate) interrupted: bool,
    #[serde(flatten)]
    pub(crate) copies: Option<Conditions<'a>>,
    pub(crate) records: Vec<Record>,
}

/// The conditions of copies.
#[derive(Serialize)]
pub(crate) struct Conditions<'a> {
    cold: Cold,
    /// One plain 4-byte load from the mapping.
    load: &'a Times,
}

/// One method at one point. With neither times nor an error, the method was left out.
#[derive(Serialize)]
pub(super) struct Record<'a> {
    method: &'a str,
    function: &'a str,
    direction: Direction,
    size_bytes: usize,
    offset_bytes: usize,
    alignment_bytes: usize,
    host_alignment_bytes: usize,
    /// Cache lines touched on the device side.
    lines: usize,
    iterations: usize,
    #[serde(flatten)]
    times: Option<&'a Times>,
    bandwidth_mib_per_s: Option<f64>,
    floor_ns: Option<f64>,
    floor_ratio: Option<f64>,
    ratio: Option<f64>,
    /// The bytes that were copied wrong.
    error: Option<&'a str>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn timed(ns: f64) -> Outcome {
        Outcome::Timed(Times::new(vec![ns]))
    }

    pub(crate) fn wrong(why: &str) -> Outcome {
        Outcome::Wrong(why.into())
    }

    /// Reads of 2 KiB by two libraries; a round trip takes a microsecond.
    pub(crate) fn results(outcomes: [Outcome; 2]) -> Results {
        let result = |outcome| MethodResult { function: "gdr_copy_from_mapping", outcome };
        Results {
            setup: Setup {
                tool: "copylat".into(),
                command: "gdrcopy copylat".into(),
                cuda_version: 13000,
                cpu: Some(4),
                ..Setup::default()
            },
            verified: true,
            cold: Cold::default(),
            methods: vec!["a".into(), "b".into()],
            load: Times::new(vec![1000.0]),
            rows: vec![Row {
                point: Point::fixed(Direction::Read, 2048, 0),
                iterations: 1,
                results: outcomes.map(result).into(),
            }],
            interrupted: false,
        }
    }

    #[test]
    fn ratios_refer_to_the_first_method_and_to_the_floor() {
        let results = results([timed(2000.0), timed(4000.0)]);
        let row = &results.rows[0];
        assert_eq!(row.ratio(0), None);
        assert_eq!(row.ratio(1), Some(2.0));
        assert_eq!(results.floor(&row.point), Some(2000.0));
        assert_eq!(results.floor_ratio(row, 1), Some(2.0));
        // 2 KiB in 2 µs are 1 GB/s, or 976.5625 MiB/s.
        assert_eq!(row.bandwidth(0).unwrap().round(), 977.0);
        assert!(results.failures().is_empty());
    }

    #[test]
    fn wrong_copies_have_no_numbers() {
        for outcomes in [[timed(2000.0), wrong("byte 1")], [wrong("byte 1"), timed(2000.0)]] {
            let results = results(outcomes);
            assert_eq!(results.rows[0].ratio(1), None);
            assert_eq!(results.failures().len(), 1);
        }
        let results = results([timed(2000.0), wrong("byte 1")]);
        assert_eq!(results.rows[0].bandwidth(1), None);
        assert_eq!(results.floor_ratio(&results.rows[0], 1), None);
        assert_eq!(results.failures(), ["b: gdr_copy_from_mapping of 2048 bytes at offset 0: byte 1"]);
        let records = serde_json::to_value(results.records()).unwrap();
        assert_eq!(records[1]["error"], "byte 1");
        assert!(records[1]["p50_ns"].is_null());
    }

    #[test]
    fn loads_from_a_cache_give_no_floor() {
        let mut results = results([timed(1.0), timed(1.0)]);
        results.load = Times::new(vec![3.0]);
        assert_eq!(results.floor_ratio(&results.rows[0], 0), None);
    }

    #[test]
    fn records_hold_the_numbers() {
        let results = results([timed(2000.0), timed(3000.0)]);
        let record = &serde_json::to_value(results.records()).unwrap()[1];
        assert_eq!(record["method"], "b");
        assert_eq!(record["direction"], "read");
        assert_eq!(record["p50_ns"], 3000.0);
        assert_eq!(record["ratio"], 1.5);
        assert_eq!(record["floor_ns"], 2000.0);
        assert_eq!(record["floor_ratio"], 1.5);
        assert!(record["error"].is_null());
    }
}
