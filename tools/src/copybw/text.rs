//! Results for people.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::copying::{Results, Row};
use crate::table::Table;

/// The bandwidth of each direction, or, after a sweep, of each size; and how the times spread.
pub(super) fn render(results: &Results, is_sweep: bool) -> String {
    let mut text = results.setup.to_string();
    if !is_sweep {
        for row in &results.rows {
            text.push_str(&bandwidths(results, row));
        }
    }
    let _ = write!(text, "\n{}", table(results));
    text
}

/// As scripts look for it: `write BW: 1234.56MB/s`, which are MiB. Two libraries are told by name.
fn bandwidths(results: &Results, row: &Row) -> String {
    let lines = results.methods.iter().enumerate().map(|(method, label)| {
        let name = match results.methods.len() {
            1 => String::new(),
            _ => format!("{label}: "),
        };
        let direction = row.copy.direction.name();
        match row.bandwidth(method) {
            Some(bandwidth) => format!("{name}{direction} BW: {bandwidth:.2}MB/s\n"),
            None => format!("{name}{direction} BW: FAILED\n"),
        }
    });
    lines.collect()
}

fn table(results: &Results) -> Table {
    let mut names = vec!["Function", "Library", "Size(B)", "Offset(B)", "MiB/s"];
    names.extend(["P0(us)", "P50(us)", "P99(us)"]);
    if results.methods.len() > 1 {
        names.push("Ratio");
    }
    let mut table = Table::new(names);
    for row in &results.rows {
        for (method, label) in results.methods.iter().enumerate() {
            let microseconds = |ns: f64| format!("{:.4}", ns / 1000.0);
            let mut cells = vec![
                row.results[method].function.to_owned(),
                label.clone(),
                row.copy.size.to_string(),
                row.copy.offset.to_string(),
            ];
            match row.times(method) {
                Some(times) => {
                    let bandwidth = row.bandwidth(method).unwrap_or_default();
                    cells.push(format!("{bandwidth:.2}"));
                    cells.extend([times.p0, times.median, times.p99].map(microseconds));
                }
                None => cells.extend(["FAILED", "", "", ""].map(str::to_owned)),
            }
            if results.methods.len() > 1 {
                let ratio = row.ratio(method);
                cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
            }
            table.push(cells);
        }
    }
    table
}
