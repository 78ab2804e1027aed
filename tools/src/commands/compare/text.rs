//! Results as tables.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::commands::copies;
use crate::measure::floor;
use crate::measure::plan::{Direction, Point};
use crate::measure::results::{Results, Row};
use crate::output::table::Table;
use crate::output::two_decimals;
use crate::system::bytes::Bytes;

pub(super) fn render(results: &Results) -> String {
    let setup = &results.setup;
    let load = &results.load;
    let mut text = format!("{}\n{setup}", setup.command);
    if let Some(model) = &setup.cpu_model {
        let _ = writeln!(text, "{model}");
    }
    if results.cold.host {
        text.push_str("host side not in the CPU's caches\n");
    }
    let _ = writeln!(text, "one 4-byte load: {:.0} ns (P0 {:.0}, P99 {:.0})", load.median, load.p0, load.p99);
    if floor::round_trip(load).is_none() {
        text.push_str("(it comes from a cache: no floor is reported)\n");
    }
    for direction in Direction::BOTH {
        let rows: Vec<_> = results.rows.iter().filter(|row| row.point.direction == direction).collect();
        for host_alignment in unique(&rows, |point| point.host_alignment) {
            let mut rows = rows.clone();
            rows.retain(|row| row.point.host_alignment == host_alignment);
            let mut title = direction.name().to_owned();
            if host_alignment > 0 {
                let _ = write!(title, ", host {host_alignment} past a line");
            }
            let section = Section {
                results,
                title,
                sizes: unique(&rows, |point| point.size),
                alignments: unique(&rows, Point::alignment),
                rows,
            };
            section.render(&mut text);
        }
    }
    text
}

fn unique(rows: &[&Row], value: impl Fn(&Point) -> usize) -> Vec<usize> {
    let mut values: Vec<_> = rows.iter().map(|row| value(&row.point)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The rows of one direction and host alignment.
struct Section<'a> {
    results: &'a Results,
    title: String,
    rows: Vec<&'a Row>,
    sizes: Vec<usize>,
    alignments: Vec<usize>,
}

impl Section<'_> {
    fn render(&self, text: &mut String) {
        let results = self.results;
        let title = &self.title;
        let methods = &results.methods;
        for (i, method) in methods.iter().enumerate() {
            self.matrix(text, &format!("{title}, ns: {method}"), |row| time(row, i));
        }
        if self.rows.iter().any(|row| results.floor(&row.point).is_some()) {
            for (i, method) in methods.iter().enumerate() {
                let title = format!("{title}, time / floor: {method}");
                self.matrix(text, &title, |row| two_decimals(results.floor_ratio(row, i)));
            }
        }
        for (i, method) in methods.iter().enumerate().skip(1) {
            let title = format!("{title}, time / time of {}: {method}", methods[0]);
            self.matrix(text, &title, |row| two_decimals(row.ratio(i)));
        }
        self.spread(text);
        self.crossovers(text);
    }

    /// A table of sizes and device alignments.
    fn matrix(&self, text: &mut String, title: &str, cell: impl Fn(&Row) -> String) {
        let mut names = vec!["size \\ alignment".to_owned()];
        names.extend(self.alignments.iter().map(usize::to_string));
        let mut table = Table::new(names);
        for &size in &self.sizes {
            let mut cells = vec![Bytes(size).to_string()];
            for &alignment in &self.alignments {
                let mut rows = self.rows.iter();
                let row = rows.find(|row| row.point.size == size && row.point.alignment() == alignment);
                cells.push(match row {
                    Some(row) => cell(row),
                    None => String::new(),
                });
            }
            table.push(cells);
        }
        let _ = write!(text, "\n{title}\n{table}");
    }

    /// The rows at the first alignment.
    fn first_column(&self) -> Vec<&Row> {
        let rows = self.rows.iter().copied();
        rows.filter(|row| row.point.alignment() == self.alignments[0]).collect()
    }

    /// The spread of the times, at the first alignment.
    fn spread(&self, text: &mut String) {
        for (i, method) in self.results.methods.iter().enumerate() {
            let _ = writeln!(text, "\n{}, {} past a line: {method}", self.title, self.alignments[0]);
            let _ = write!(text, "{}", copies::table(&self.first_column(), i));
        }
    }

    /// The size from which on each method that is not a library is faster than the first library, at
    /// the first alignment.
    fn crossovers(&self, text: &mut String) {
        let methods = &self.results.methods;
        for i in self.results.setup.libraries.len()..methods.len() {
            let mut from = "no size measured".to_owned();
            for row in self.first_column().into_iter().rev() {
                match row.ratio(i) {
                    Some(ratio) if ratio < 1.0 => from = Bytes(row.point.size).to_string(),
                    _ => break,
                }
            }
            let _ = writeln!(text, "\n{}: {} is faster than {} from: {from}", self.title, methods[i], methods[0]);
        }
    }
}

/// The median, or why there is none.
fn time(row: &Row, method: usize) -> String {
    match row.times(method) {
        Some(times) if times.median < 100.0 => format!("{:.1}", times.median),
        Some(times) => format!("{:.0}", times.median),
        None => row.results[method].outcome.reason().into(),
    }
}
