//! The chart and the table of UCX's latency with each libgdrapi, from lines of ucx_perftest (docs/data).
#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};

use crate::output::svg::{Chart, Curve, Panel, Point, Style};
use crate::output::table::Table;
use crate::system::bytes::Bytes;

/// The libraries, by their names in the file.
const LIBRARIES: [(&str, &str); 2] = [("ours", "gdrapi"), ("nv", "NVIDIA 2.6")];
/// Where the second panel begins, at the first sizes that settings of UCX change.
const LARGE: usize = 1024;

/// Draws a file of messages as an SVG file.
///
/// # Errors
/// A line cannot be read, or the file cannot be written.
pub fn draw_messages(file: &str, chart: &Path) -> Result<()> {
    Messages::read(file)?.chart().write(chart)
}

/// The medians of a file of messages, as a table in Markdown.
///
/// # Errors
/// A line cannot be read.
pub fn table_of_messages(file: &str) -> Result<String> {
    Ok(Messages::read(file)?.table())
}

#[derive(Debug, Default)]
struct Messages {
    title: String,
    facts: Vec<String>,
    /// Each of UCX's settings, the default first.
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    name: String,
    /// Size, name of the library, microseconds.
    runs: Vec<(usize, String, f64)>,
}

impl Messages {
    fn read(file: &str) -> Result<Self> {
        let mut messages = Self::default();
        for line in file.lines() {
            if let Some(title) = line.strip_prefix("#title ") {
                messages.title = title.into();
            } else if let Some(facts) = line.strip_prefix("#facts ") {
                messages.facts = facts.split("; ").map(String::from).collect();
            } else if let Some(name) = line.strip_prefix("#setting ") {
                messages.settings.push(Setting { name: name.into(), runs: Vec::new() });
            } else if !line.starts_with('#') {
                let setting = messages.settings.last_mut().context("a run before the first #setting")?;
                setting.runs.push(run(line).with_context(|| format!("no run of ucx_perftest: {line}"))?);
            }
        }
        Ok(messages)
    }

    fn chart(&self) -> Chart {
        let dashed = match self.settings.get(1) {
            Some(setting) => format!("; dashed: {}", setting.name),
            None => String::new(),
        };
        Chart {
            title: self.title.clone(),
            facts: self.facts.clone(),
            notes: vec![
                "Time from one process to the other: half a round trip. Lower is better.".into(),
                "Lines are medians, bands reach over all runs. Axes are logarithmic, each panel has its own.".into(),
            ],
            sizes: "size of the message",
            columns: 2,
            is_comparable: false,
            panels: vec![
                self.panel("Up to 1 KiB".into(), 1..=LARGE),
                self.panel(format!("From 1 KiB{dashed}"), LARGE..=usize::MAX),
            ],
        }
    }

    /// The default is solid, another setting dashed.
    fn panel(&self, title: String, sizes: RangeInclusive<usize>) -> Panel {
        let mut curves = Vec::new();
        for (number, setting) in self.settings.iter().enumerate() {
            for (color, (library, name)) in LIBRARIES.into_iter().enumerate() {
                let mut points = Vec::new();
                for size in setting.sizes() {
                    if sizes.contains(&size) {
                        points.extend(setting.point(size, library));
                    }
                }
                // The first panel has one point of the other settings, at its edge.
                if points.len() < 2 {
                    continue;
                }
                let value = setting.name.rsplit('=').next().unwrap_or_default();
                curves.push(match number {
                    0 => Curve { label: name.into(), style: Style::Solid(color), points },
                    _ => Curve { label: format!("{name}, {value}"), style: Style::Dashed(color), points },
                });
            }
        }
        Panel { title, unit: "s", curves, ceiling: None }
    }

    fn table(&self) -> String {
        let mut sizes: Vec<_> = self.settings.iter().flat_map(Setting::sizes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut names = vec!["size".to_owned()];
        for Setting { name, .. } in &self.settings {
            names.extend([format!("{name}: NVIDIA 2.6"), "gdrapi".into(), "ratio".into()]);
        }
        let mut table = Table::new(names);
        for size in sizes {
            let mut cells = vec![Bytes(size).to_string()];
            for setting in &self.settings {
                match (setting.point(size, "nv"), setting.point(size, "ours")) {
                    (Some(nvidia), Some(ours)) => {
                        cells.extend([us(nvidia), us(ours), format!("{:.2}", ours.value / nvidia.value)]);
                    }
                    _ => cells.extend(["", "", ""].map(String::from)),
                }
            }
            table.push(cells);
        }
        table.markdown()
    }
}

impl Setting {
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.runs.iter().map(|run| run.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The median and the range of a library's runs of a size.
    fn point(&self, size: usize, library: &str) -> Option<Point> {
        let runs = self.runs.iter().filter(|run| run.0 == size && run.1 == library);
        let mut seconds: Vec<_> = runs.map(|run| run.2 / 1e6).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*seconds.first()?, *seconds.last()?);
        Some(Point { size: size as f64, value: seconds[seconds.len() / 2], low, high })
    }
}

/// Size, library and microseconds of `cuda,cuda 100 nv 1 3000,3.347,…`.
fn run(line: &str) -> Option<(usize, String, f64)> {
    let [_memory, size, library, _number, results] = line.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let us = results.split(',').nth(1)?;
    Some((size.parse().ok()?, library.into(), us.parse().ok()?))
}

/// Microseconds with three digits.
fn us(point: Point) -> String {
    let us = point.value * 1e6;
    let decimals = if us < 10.0 {
        2
    } else if us < 100.0 {
        1
    } else {
        0
    };
    format!("{us:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const FILE: &str = "#title A finding\n#facts UCX; a GPU\n#setting default\n\
        cuda,cuda 64 nv 1 3000,4.0,9\ncuda,cuda 64 nv 2 3000,2.0,9\ncuda,cuda 64 nv 3 3000,3.0,9\n\
        cuda,cuda 64 ours 1 3000,1.5,9\ncuda,cuda 4096 nv 1 3000,157.4,9\n#setting X=1\ncuda,cuda 64 ours 1 3000,1.2\n";

    #[test]
    fn point_is_the_median_and_the_range_of_the_runs() {
        let messages = Messages::read(FILE).unwrap();
        let point = messages.settings[0].point(64, "nv").unwrap();
        assert_eq!(point, Point { size: 64.0, value: 3e-6, low: 2e-6, high: 4e-6 });
        assert_eq!(messages.settings[1].point(64, "nv"), None);
    }

    #[test]
    fn table_has_a_row_per_size_and_three_columns_per_setting() {
        let table = table_of_messages(FILE).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows, ["| 64 B | 3.00 | 1.50 | 0.50 | | | |", "| 4 KiB | | | | | | |"]);
    }

    #[test]
    fn line_that_is_no_run_is_refused_with_its_text() {
        let refused = table_of_messages("#setting default\ncuda,cuda 64 nv failed\n").unwrap_err().to_string();
        assert_eq!(refused, "no run of ucx_perftest: cuda,cuda 64 nv failed");
    }

    /// `make ucx-picture` mends both.
    #[test]
    fn picture_and_table_in_docs_are_those_of_their_data() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
        let messages = Messages::read(&read("data/ucx-h100.txt")).unwrap();
        assert_eq!(read("ucx-latency.svg"), messages.chart().svg());
        assert!(read("performance.md").contains(&messages.table()), "{}", messages.table());
    }
}
