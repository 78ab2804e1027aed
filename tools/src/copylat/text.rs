//! Results for people.

use std::fmt::Write;

use crate::copying::{Direction, Results, Row};
use crate::floor;
use crate::table::Table;

/// A table for each direction.
pub(super) fn render(results: &Results) -> String {
    let mut text = results.setup.to_string();
    let _ = match floor::round_trip(&results.load) {
        Some(ns) => writeln!(text, "one round trip to the GPU: {} us", microseconds(ns)),
        None => writeln!(text, "loads come from a cache: there is no floor"),
    };
    for direction in Direction::BOTH {
        let rows: Vec<_> = results
            .rows
            .iter()
            .filter(|row| row.copy.direction == direction)
            .collect();
        if let Some(row) = rows.first() {
            let iterations = row.iterations;
            let _ = writeln!(text, "\n{}: {iterations} calls each size", direction.name());
            let _ = write!(text, "{}", table(results, direction, &rows));
        }
    }
    text
}

/// A line for each size and function; two libraries stand side by side.
fn table(results: &Results, direction: Direction, rows: &[&Row]) -> Table {
    let libraries = results.setup.libraries.len();
    let has_floor = direction == Direction::Read && floor::round_trip(&results.load).is_some();
    let mut names = vec!["Test".to_owned(), "Size(B)".to_owned()];
    for label in &results.methods[..libraries] {
        let prefix = match libraries {
            1 => String::new(),
            _ => format!("{label} "),
        };
        names.extend(["P50", "P0", "P99"].map(|name| format!("{prefix}{name}.Time(us)")));
    }
    if libraries > 1 {
        names.push("Ratio".into());
    }
    if has_floor {
        names.push("Floor(us)".into());
    }
    let mut table = Table::new(names);
    // Each function has its lines together: the libraries' first, then CUDA's.
    let mut lines = |methods: std::ops::Range<usize>| {
        for row in rows {
            let first = methods.start;
            let mut cells = vec![
                row.results[first].function.to_owned(),
                row.copy.size.to_string(),
            ];
            for method in first..first + libraries {
                let told = methods.contains(&method);
                cells.extend(times(row, method, told));
            }
            if libraries > 1 {
                let ratio = row.ratio(methods.end - 1);
                cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
            }
            if has_floor {
                cells.push(results.floor(row.copy).map_or(String::new(), microseconds));
            }
            table.push(cells);
        }
    };
    lines(0..libraries);
    if results.methods.len() > libraries {
        lines(libraries..libraries + 1);
    }
    table
}

/// Median, smallest and P99.
fn times(row: &Row, method: usize, told: bool) -> [String; 3] {
    if !told {
        return Default::default();
    }
    match row.times(method) {
        Some(times) => [times.median, times.p0, times.p99].map(microseconds),
        None => ["FAILED", "", ""].map(str::to_owned),
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.4}", ns / 1000.0)
}
