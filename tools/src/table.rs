//! Tables of text: the first column to the left, the others to the right.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};

/// A line of names, and lines of as many cells.
#[derive(Debug)]
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these names above its columns.
    pub fn new<Name: Into<String>>(names: impl IntoIterator<Item = Name>) -> Table {
        let names = names.into_iter().map(Into::into).collect();
        Table { lines: vec![names] }
    }

    /// Adds a line.
    pub fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.lines[0].len());
        self.lines.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let width = |cell: &String| cell.chars().count();
        let widths: Vec<usize> = (0..self.lines[0].len())
            .map(|column| self.lines.iter().map(|line| width(&line[column])).max())
            .map(Option::unwrap_or_default)
            .collect();
        for line in &self.lines {
            let mut text = String::new();
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(text, "{cell:<width$}")?,
                    _ => write!(text, "  {cell:>width$}")?,
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
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
}
