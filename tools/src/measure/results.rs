//! The results of measurements, in the form that the tools write as JSON, and their tables.
#![forbid(unsafe_code)]

use serde::Serialize;
use serde_json::Value;

use super::plan::{Direction, Point};
use super::session::Setup;
use super::stats::Times;
use crate::output::table::{Columns, Table};

/// The results of copies, as one JSON document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) setup: Setup,
    /// True if the user has ended the measurement early.
    pub(crate) interrupted: bool,
    /// True if the GPU wrote the memory before each copy.
    pub(crate) cold_device: bool,
    /// The times of one plain 4-byte load from the mapping.
    pub(crate) load: Times,
    /// Records with the same direction, size and alignment follow each other, in the order of the methods. Methods that
    /// are libraries come first.
    pub(crate) records: Vec<Record>,
}

/// The result of one method for the copies of one point, which have the same direction, size and alignment.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Record {
    pub(crate) method: String,
    pub(crate) function: &'static str,
    #[serde(flatten)]
    pub(crate) point: Point,
    /// The number of copies that were timed.
    pub(crate) iterations: usize,
    #[serde(flatten)]
    pub(crate) times: Option<Times>,
    /// The bandwidth, computed from the mean time.
    pub(crate) bandwidth_mib_per_s: Option<f64>,
    /// The median time divided by that of the first method.
    pub(crate) ratio: Option<f64>,
    /// Describes the first byte that was copied wrong.
    pub(crate) error: Option<String>,
}

impl Record {
    /// Sets the times, and the numbers that follow from them and from the times of the first method.
    pub(crate) fn set_times(&mut self, times: Times, first: Option<Times>) {
        self.times = Some(times);
        self.bandwidth_mib_per_s = mib_per_second(self.point.size, times.mean);
        self.ratio = times.ratio(first);
    }
}

/// A load that takes fewer nanoseconds than this comes from a cache of the CPU, without a round trip to the GPU.
const FASTEST_ROUND_TRIP: f64 = 200.0;

/// Returns the nanoseconds of a round trip to the GPU; `None` if loads come from a cache.
pub(crate) fn round_trip(load: &Times) -> Option<f64> {
    if load.median >= FASTEST_ROUND_TRIP { Some(load.median) } else { None }
}

/// Returns the bandwidth of copies of this size that take this long; `None` if they take no time.
pub(crate) fn mib_per_second(bytes: usize, ns: f64) -> Option<f64> {
    if ns <= 0.0 {
        return None;
    }
    let mib = bytes as f64 / f64::from(1 << 20);
    Some(mib / (ns / 1e9))
}

impl Results {
    /// Returns descriptions of the copies that were wrong.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for Record { method, function, point, error, .. } in &self.records {
            if let Some(error) = error {
                let Point { size, offset, .. } = point;
                failures.push(format!("{method}: {function} of {size} bytes at offset {offset}: {error}"));
            }
        }
        failures
    }

    pub(crate) fn methods(&self) -> Vec<&str> {
        let mut methods = Vec::new();
        for record in &self.records {
            if !methods.contains(&&*record.method) {
                methods.push(&*record.method);
            }
        }
        methods
    }

    /// Returns the records of a method in a direction.
    pub(crate) fn of(&self, method: &str, direction: Direction) -> Vec<&Record> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.retain(|record| record.method == method && record.point.direction == direction);
        records
    }
}

/// The results of a tool that does not measure copies, as one JSON document.
#[derive(Serialize)]
pub(crate) struct Document<'a, Record> {
    pub(crate) setup: &'a Setup,
    pub(crate) interrupted: bool,
    pub(crate) records: Vec<Record>,
}

pub(crate) const TIMES: [(&str, &str); 3] = [("P50(us)", "p50_ns"), ("P0(us)", "p0_ns"), ("P99(us)", "p99_ns")];
pub(crate) const RATIO: (&str, &str) = ("Ratio", "ratio");

/// Returns a table with a line for each record. It has no column of ratios if no record has a ratio.
pub(crate) fn table(records: &[impl Serialize], columns: &Columns) -> Table {
    let mut rows = Vec::new();
    for record in records {
        let mut row = serde_json::to_value(record).unwrap_or_default();
        if row["p50_ns"].is_null() {
            row["p50_ns"] = if row["error"].is_null() { "-" } else { "FAILED" }.into();
        }
        rows.push(row);
    }
    let mut columns = columns.to_vec();
    if rows.iter().all(|row| row[RATIO.1] == Value::Null) {
        columns.retain(|column| *column != RATIO);
    }
    Table::of(&rows, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns results of reads of 2 KiB by methods a and b that took these times in nanoseconds.
    fn results(times: &[f64]) -> Results {
        let mut records: Vec<Record> = Vec::new();
        for (ns, method) in times.iter().zip(["a", "b"]) {
            let point = Point::fixed(Direction::Read, 2048, 0);
            let mut record = Record { method: method.into(), point, ..Record::default() };
            record.set_times(Times::new(vec![*ns]), records.first().and_then(|first| first.times));
            records.push(record);
        }
        Results {
            setup: Setup::default(),
            interrupted: false,
            cold_device: false,
            load: Times::new(vec![1000.0]),
            records,
        }
    }

    #[test]
    fn ratios_refer_to_the_first_method() {
        let results = results(&[2000.0, 4000.0]);
        let records = serde_json::to_value(&results.records).unwrap();
        assert!(records[0]["ratio"].is_null());
        assert_eq!(records[1]["ratio"], 2.0);
        // 2 KiB in 2 µs are 1.024 GB/s, or 976.5625 MiB/s.
        assert_eq!(records[0]["bandwidth_mib_per_s"].as_f64().unwrap().round(), 977.0);
        assert!(results.failures().is_empty());
        let lines = table(&results.records[1..], &[("Size(B)", "size_bytes"), TIMES[0], RATIO]).to_string();
        assert_eq!(lines, "Size(B)  P50(us)  Ratio\n2048      4.0000   2.00\n");
    }

    #[test]
    fn loads_from_a_cache_are_no_round_trips() {
        assert_eq!(round_trip(&Times::new(vec![3.0])), None);
        assert_eq!(round_trip(&Times::new(vec![1000.0])), Some(1000.0));
    }
}
