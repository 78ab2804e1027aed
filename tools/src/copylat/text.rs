//! Results for people.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::ops::Range;

use crate::copying::{Direction, Results, Row};
use crate::floor;
use crate::table::Table;

/// A table for each direction, and one for CUDA's own copies beneath it.
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
        let Some(first) = rows.first() else {
            continue;
        };
        let _ = write!(
            text,
            "\n{}: {} calls each size",
            direction.name(),
            first.iterations
        );
        let libraries = results.setup.libraries.len();
        for methods in [0..libraries, libraries..results.methods.len()] {
            if !methods.is_empty() {
                let _ = write!(text, "\n{}", table(results, &rows, methods));
            }
        }
    }
    text
}

/// A line for each size; methods that call the same functions stand side by side. The ratio is that of
/// the last one to the first library.
fn table(results: &Results, rows: &[&Row], methods: Range<usize>) -> Table {
    let has_ratio = methods.end > 1;
    let has_floor = methods.start == 0 && rows.iter().any(|row| results.floor(row.copy).is_some());
    let mut names = vec!["Test".to_owned(), "Size(B)".to_owned()];
    for label in &results.methods[methods.clone()] {
        let prefix = match methods.len() {
            1 => String::new(),
            _ => format!("{label} "),
        };
        names.extend(["P50", "P0", "P99"].map(|name| format!("{prefix}{name}.Time(us)")));
    }
    names.extend(has_ratio.then(|| "Ratio".into()));
    names.extend(has_floor.then(|| "Floor(us)".into()));

    let mut table = Table::new(names);
    for row in rows {
        let function = row.results[methods.start].function;
        let mut cells = vec![function.to_owned(), row.copy.size.to_string()];
        cells.extend(methods.clone().flat_map(|method| times(row, method)));
        if has_ratio {
            let ratio = row.ratio(methods.end - 1);
            cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
        }
        if has_floor {
            let floor = results.floor(row.copy);
            cells.push(floor.map_or(String::new(), microseconds));
        }
        table.push(cells);
    }
    table
}

/// Median, smallest and P99.
fn times(row: &Row, method: usize) -> [String; 3] {
    match row.times(method) {
        Some(times) => [times.median, times.p0, times.p99].map(microseconds),
        None => ["FAILED", "", ""].map(str::to_owned),
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.4}", ns / 1000.0)
}
