//! Tables as plain text.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};

use serde_json::Value;

use crate::system::bytes::Bytes;

/// Names of columns, each with the name of the JSON field that the column shows. A field's name ends with the unit of
/// its values. The column shows them in the unit in parentheses in its own name or, without one, in a unit that fits.
pub(crate) type Columns = [(&'static str, &'static str)];

/// A line with the names of columns, and lines with one cell for each name.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these names above its columns.
    pub(crate) fn new<Name: Into<String>>(names: impl IntoIterator<Item = Name>) -> Table {
        let names = names.into_iter().map(Into::into).collect();
        Table { lines: vec![names] }
    }

    pub(crate) fn of(rows: &[Value], columns: &Columns) -> Table {
        let mut table = Table::new(columns.iter().map(|column| column.0));
        for row in rows {
            table.push(columns.iter().map(|column| in_column(row, column)).collect());
        }
        table
    }

    pub(crate) fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.lines[0].len());
        self.lines.push(cells);
    }
}

impl fmt::Display for Table {
    /// Aligns the first column to the left, and the others to the right.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let mut widths = vec![0; self.lines[0].len()];
        for line in &self.lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in &self.lines {
            let mut text = format!("{:<width$}", line[0], width = widths[0]);
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                write!(text, "  {cell:>width$}")?;
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

fn in_column(row: &Value, (name, field): &(&str, &str)) -> String {
    let number = row[field].as_f64();
    match number {
        Some(ns) if name.ends_with("(us)") => microseconds(ns),
        Some(bytes) if name.ends_with("(B)") => bytes.to_string(),
        _ => cell(row, field),
    }
}

/// Returns a field's value as text, with the unit that the field's name ends with.
pub(crate) fn cell(row: &Value, field: &str) -> String {
    let number = row[field].as_f64().unwrap_or(0.0);
    match &row[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        _ if field.ends_with("bytes_per_second") && number == 0.0 => String::new(),
        _ if field.ends_with("bytes_per_second") => quantity(number, "B/s"),
        _ if field.ends_with("bytes") => Bytes(number as usize).to_string(),
        _ if field.ends_with("_ns") && number > 0.0 => quantity(number / 1e9, "s"),
        Value::Number(fraction) if fraction.is_f64() => format!("{number:.2}"),
        number => number.to_string(),
    }
}

/// Returns nanoseconds as microseconds. Times below a second take about 8 characters at most.
fn microseconds(ns: f64) -> String {
    let us = ns / 1000.0;
    if us < 1000.0 { format!("{us:.4}") } else { format!("{us:.1}") }
}

/// Returns the text of a value with its unit and the prefix that fits, such as k or M.
fn quantity(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 8] =
        [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p")];
    let mut number = value / 1e-12;
    let mut prefix = "p";
    for (scale, fitting) in PREFIXES {
        // Powers of ten below 1 are not exact in floating point, so a value may be a little less than `scale`.
        if value >= scale * 0.9999 {
            number = value / scale;
            prefix = fitting;
            break;
        }
    }
    let decimals = if number.round() >= 10.0 || (number - number.round()).abs() < 0.01 { 0 } else { 1 };
    format!("{number:.decimals$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["a", "µs"]);
        table.push(vec!["long".into(), "1".into()]);
        table.push(vec!["b".into(), "100".into()]);
        assert_eq!(table.to_string(), "a      µs\nlong    1\nb     100\n");
    }

    #[test]
    fn cells_have_the_units_of_their_fields() {
        let row = serde_json::json!({ "name": "a", "n": 3, "bytes": 147_456, "mean_ns": 1200.5, "empty": null });
        let columns = [("A", "name"), ("N", "n"), ("B", "bytes"), ("T", "mean_ns"), ("E", "empty")];
        let rows = [row];
        assert_eq!(Table::of(&rows, &columns).to_string(), "A  N        B       T  E\na  3  144 KiB  1.2 µs\n");
        let columns = [("A", "name"), ("Size(B)", "bytes"), ("T(us)", "mean_ns")];
        assert_eq!(Table::of(&rows, &columns).to_string(), "A  Size(B)   T(us)\na   147456  1.2005\n");
    }

    #[test]
    fn quantities_have_the_prefix_that_fits() {
        let texts = [1e-9, 2.34e-9, 1.5e-6, 1e-4, 0.1 + 0.2].map(|value| quantity(value, "s"));
        assert_eq!(texts, ["1 ns", "2.3 ns", "1.5 µs", "100 µs", "300 ms"]);
        assert_eq!(quantity(1e9, "B/s"), "1 GB/s");
    }
}
