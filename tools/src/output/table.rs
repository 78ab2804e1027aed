//! Tables as plain text and as Markdown.
#![forbid(unsafe_code)]

use std::fmt::{self, Write};

/// A line of names, and lines with one cell per name.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with these names above its columns.
    pub(crate) fn new<Name: Into<String>>(names: impl IntoIterator<Item = Name>) -> Table {
        let names = names.into_iter().map(Into::into).collect();
        Table { lines: vec![names] }
    }

    pub(crate) fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.lines[0].len());
        self.lines.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.lines[0].len()];
        for line in &self.lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }

    /// As Markdown, all columns to the right.
    pub(crate) fn markdown(&self) -> String {
        let mut markdown = String::new();
        for (number, cells) in self.lines.iter().enumerate() {
            // An empty cell is one blank.
            markdown += &format!("| {} |\n", cells.join(" | ")).replace("  ", " ");
            if number == 0 {
                markdown += &format!("|{}\n", " ---: |".repeat(cells.len()));
            }
        }
        markdown
    }
}

impl fmt::Display for Table {
    /// The first column to the left, the others to the right.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let widths = self.widths();
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
        let markdown = "| a | µs |\n| ---: | ---: |\n| long | 1 |\n| b | 100 |\n";
        assert_eq!(table.markdown(), markdown);
    }
}
