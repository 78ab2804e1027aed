//! Tables, in a form that Markdown takes too.
#![forbid(unsafe_code)]

use std::fmt::Write;

use gdrcopy_tools::bytes::Bytes;

use crate::options::Direction;
use crate::plan::Point;
use crate::results::{Outcome, Results, Row};

/// The whole report.
pub(crate) fn render(results: &Results) -> String {
    let mut text = heading(results);
    for direction in [Direction::To, Direction::From] {
        for host_alignment in host_alignments(results, direction) {
            let section = Section::new(results, direction, host_alignment);
            section.render(&mut text);
        }
    }
    for (method, point, wrong) in results.failures() {
        let _ = writeln!(text, "\nFAILED: {method}, {}: {wrong}", describe(point));
    }
    text
}

fn heading(results: &Results) -> String {
    let (setup, load) = (&results.setup, &results.load);
    let place = setup
        .cpu
        .map_or("no CPU in particular".into(), |cpu| format!("CPU {cpu}"));
    let caches = if setup.cold {
        "; host side not in the caches"
    } else {
        ""
    };
    let mut text = format!(
        "{}\n{}, CUDA {}.{}, {} mapping; {}, on {place}{caches}\n",
        setup.command,
        setup.gpu,
        setup.cuda_version / 1000,
        setup.cuda_version % 1000 / 10,
        setup.mapping_type,
        setup.cpu_model,
    );
    let _ = writeln!(
        text,
        "one 4-byte load: {:.0} ns (P0 {:.0}, P99 {:.0})",
        load.median, load.p0, load.p99
    );
    if results.round_trip().is_none() {
        text.push_str("(it comes from a cache: there is no floor to compare reads with)\n");
    }
    text
}

fn host_alignments(results: &Results, direction: Direction) -> Vec<usize> {
    let rows = results.rows.iter().map(|row| &row.point);
    let mut all: Vec<_> = rows
        .filter(|point| point.direction == direction)
        .map(|point| point.host_alignment)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// All that is told of one direction and host alignment.
struct Section<'a> {
    results: &'a Results,
    direction: Direction,
    host_alignment: usize,
    rows: Vec<&'a Row>,
    sizes: Vec<usize>,
    alignments: Vec<usize>,
}

impl<'a> Section<'a> {
    fn new(results: &'a Results, direction: Direction, host_alignment: usize) -> Section<'a> {
        let key = (direction, host_alignment);
        let is_in = |row: &&Row| (row.point.direction, row.point.host_alignment) == key;
        let rows: Vec<_> = results.rows.iter().filter(is_in).collect();
        let unique = |value: fn(&Point) -> usize| {
            let mut values: Vec<_> = rows.iter().map(|row| value(&row.point)).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        Section {
            results,
            direction,
            host_alignment,
            sizes: unique(|point| point.size),
            alignments: unique(|point| point.alignment),
            rows,
        }
    }

    fn render(&self, text: &mut String) {
        let verb = self.direction.verb();
        let host = match self.host_alignment {
            0 => String::new(),
            past => format!(", host {past} past a line"),
        };
        let methods = &self.results.methods;
        for (i, method) in methods.iter().enumerate() {
            self.matrix(text, &format!("{verb}{host}, ns: {method}"), |row| {
                time(row, i)
            });
        }
        if self.direction == Direction::From && self.results.round_trip().is_some() {
            for (i, method) in methods.iter().enumerate() {
                let title = format!("{verb}{host}, time / floor: {method}");
                self.matrix(text, &title, |row| ratio(self.results.floor_ratio(row, i)));
            }
        }
        for (i, method) in methods.iter().enumerate().skip(1) {
            let title = format!("{verb}{host}, time / time of {}: {method}", methods[0]);
            self.matrix(text, &title, |row| ratio(row.ratio(i)));
        }
        self.spread(text, &format!("{verb}{host}"));
        self.crossovers(text, verb);
    }

    /// A table of sizes and device alignments.
    fn matrix(&self, text: &mut String, title: &str, cell: impl Fn(&Row) -> String) {
        let mut header = vec!["size \\ alignment".to_owned()];
        header.extend(self.alignments.iter().map(usize::to_string));
        let lines = self.sizes.iter().map(|&size| {
            let of_size = self.alignments.iter().map(|&alignment| {
                let wanted = (size, alignment);
                let at = |row: &&&Row| (row.point.size, row.point.alignment) == wanted;
                self.rows
                    .iter()
                    .find(at)
                    .map_or(String::new(), |row| cell(row))
            });
            std::iter::once(Bytes(size).to_string())
                .chain(of_size)
                .collect()
        });
        table(text, title, &header, lines.collect());
    }

    /// How far the times spread, at the first alignment.
    fn spread(&self, text: &mut String, title: &str) {
        let Some(&alignment) = self.alignments.first() else {
            return;
        };
        let mut header = vec!["size".to_owned()];
        for method in &self.results.methods {
            header.push(format!("{method}: P0"));
            header.extend(["median", "P99", "GB/s", "samples"].map(str::to_owned));
        }
        let rows = self
            .rows
            .iter()
            .filter(|row| row.point.alignment == alignment);
        let lines = rows.map(|row| {
            let mut line = vec![Bytes(row.point.size).to_string()];
            for (i, outcome) in row.outcomes.iter().enumerate() {
                line.extend(match outcome {
                    Outcome::Timed(times) => [
                        number(times.p0),
                        number(times.median),
                        number(times.p99),
                        ratio(row.bandwidth(i)),
                        times.samples.to_string(),
                    ],
                    _ => [time(row, i), "".into(), "".into(), "".into(), "".into()],
                });
            }
            line
        });
        let title = format!("{title}, {alignment} past a line: ns and GB/s");
        table(text, &title, &header, lines.collect());
    }

    /// From which size on each way that is no library is faster than the first library, at the first
    /// alignment.
    fn crossovers(&self, text: &mut String, verb: &str) {
        let is_first = |row: &&&Row| Some(&row.point.alignment) == self.alignments.first();
        let column: Vec<&Row> = self.rows.iter().filter(is_first).copied().collect();
        let results = self.results;
        for i in results.libraries..results.methods.len() {
            let faster = |row: &Row| row.ratio(i).is_some_and(|ratio| ratio < 1.0);
            let last_faster = column.iter().rev().take_while(|row| faster(row)).last();
            let from = last_faster.map_or("no size measured".into(), |row| {
                Bytes(row.point.size).to_string()
            });
            let (method, first) = (&results.methods[i], &results.methods[0]);
            let _ = writeln!(
                text,
                "\n{verb}: {method} is faster than {first} from here on: {from}"
            );
        }
    }
}

/// Writes a table whose first column names its rows.
fn table(text: &mut String, title: &str, header: &[String], lines: Vec<Vec<String>>) {
    let width = |(column, name): (usize, &String)| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0).max(name.chars().count()).max(2)
    };
    let widths: Vec<_> = header.iter().enumerate().map(width).collect();
    let _ = writeln!(text, "\n{title}\n");
    let mut write_line = |cells: &[String]| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!(" {cell:>width$} "));
        let _ = writeln!(text, "|{}|", padded.collect::<Vec<_>>().join("|"));
    };
    write_line(header);
    write_line(
        &widths
            .iter()
            .map(|&width| format!("{}:", "-".repeat(width - 1)))
            .collect::<Vec<_>>(),
    );
    lines.iter().for_each(|line| write_line(line));
}

/// The median, or why there is none.
fn time(row: &Row, method: usize) -> String {
    match &row.outcomes[method] {
        Outcome::Timed(times) => number(times.median),
        Outcome::Failed(_) => "FAILED".into(),
        Outcome::LeftOut => "-".into(),
    }
}

fn number(ns: f64) -> String {
    if ns < 100.0 {
        format!("{ns:.1}")
    } else {
        format!("{ns:.0}")
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

fn describe(point: &Point) -> String {
    format!(
        "{} of {}, {} past a line, host {} past a line",
        point.direction.verb(),
        Bytes(point.size),
        point.alignment,
        point.host_alignment
    )
}
