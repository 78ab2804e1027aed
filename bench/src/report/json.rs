//! Everything that was measured, for other programs.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use gdrcopy_tools::stats::Times;
use serde::Serialize;

use crate::results::{Results, Row, Setup};

/// The results, with the ratios.
#[derive(Serialize)]
struct Document<'a> {
    setup: &'a Setup,
    methods: &'a [String],
    /// Nanoseconds of one plain 4-byte load.
    load: &'a Times,
    rows: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    lines: usize,
    /// Nanoseconds that a read takes at least.
    floor: Option<f64>,
    /// For each method: how many times the floor its read takes.
    floor_ratios: Vec<Option<f64>>,
    /// For each method: how many times as long as the first it takes.
    ratios: Vec<Option<f64>>,
}

/// Writes the results to a file.
pub(crate) fn write(results: &Results, file: &Path) -> Result<()> {
    let context = || format!("writing {}", file.display());
    let mut out = BufWriter::new(File::create(file).with_context(context)?);
    serde_json::to_writer(&mut out, &document(results)).with_context(context)?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .with_context(context)
}

fn document(results: &Results) -> Document<'_> {
    let methods = 0..results.methods.len();
    let line = |row| Line {
        row,
        lines: row.point.lines(),
        floor: results.floor(row),
        floor_ratios: methods
            .clone()
            .map(|m| results.floor_ratio(row, m))
            .collect(),
        ratios: methods.clone().map(|m| row.ratio(m)).collect(),
    };
    Document {
        setup: &results.setup,
        methods: &results.methods,
        load: &results.load,
        rows: results.rows.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Outcome;
    use crate::results::tests::{results, timed};

    #[test]
    fn a_failure_has_no_ratio() {
        let results = results([timed(2000.0), Outcome::Failed("byte 1".into())]);
        let value = serde_json::to_value(document(&results)).unwrap();
        let row = &value["rows"][0];
        assert_eq!(row["size"], 2048);
        assert_eq!(row["direction"], "from");
        assert_eq!(row["floor_ratios"][0], 1.0);
        assert!(row["floor_ratios"][1].is_null());
        assert!(row["ratios"][1].is_null());
        assert_eq!(row["outcomes"][0]["timed"]["median"], 2000.0);
        assert_eq!(row["outcomes"][1]["failed"], "byte 1");
    }
}
