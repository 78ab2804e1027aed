//! Charts of results, from their JSON, which is that of this run, or a file that `--json` wrote.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::plan::Direction;
use super::session::Setup;
use crate::output::svg::{Ceiling, Chart, Curve, Panel, Point, Style};

/// The chart of what is measured over size.
#[derive(Debug, Args)]
pub(crate) struct Plot {
    /// Draw an SVG chart over size
    #[arg(long = "plot", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

impl Plot {
    /// Draws results, if the user asked for it.
    pub(crate) fn draw(&self, document: &impl Serialize) -> Result<()> {
        match &self.file {
            Some(file) => draw(document, file),
            None => Ok(()),
        }
    }
}

/// The parts of any tool's results that a chart needs.
#[derive(Deserialize)]
struct Document {
    setup: Setup,
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(alias = "library", default = "measured")]
    method: String,
    /// A direction, or the name of a call.
    #[serde(alias = "call")]
    direction: String,
    size_bytes: usize,
    #[serde(default)]
    alignment_bytes: usize,
    #[serde(default)]
    host_alignment_bytes: usize,
    p50_ns: Option<f64>,
    p0_ns: Option<f64>,
    p99_ns: Option<f64>,
    floor_ns: Option<f64>,
    tuned_ns: Option<f64>,
    default_ns: Option<f64>,
}

fn measured() -> String {
    "measured".into()
}

#[derive(Clone, Copy, PartialEq)]
enum Quantity {
    Time,
    Bandwidth,
}

/// Draws the JSON of a tool's results to an SVG file, as medians over size, with the range from P0 to
/// P99.
///
/// # Errors
/// The document is not of a tool that measures sizes, or has no times; or the file cannot be written.
pub fn draw(document: &impl Serialize, file: &Path) -> Result<()> {
    let value = serde_json::to_value(document)?;
    let document: Document = serde_json::from_value(value).context("these are no results over size")?;
    document.chart().write(file)
}

impl Document {
    fn chart(&self) -> Chart {
        let groups = unique(self.records.iter().map(|record| &record.direction[..]));
        let are_copies = groups.iter().all(|group| direction(group).is_some());
        let mut panels = Vec::new();
        for quantity in [Quantity::Time, Quantity::Bandwidth] {
            if quantity == Quantity::Time || are_copies {
                panels.extend(groups.iter().map(|group| self.panel(group, quantity)));
            }
        }
        let mut notes = vec!["Lines are medians, bands reach from P0 to P99. Both axes are logarithmic.".into()];
        if are_copies {
            notes.push("Of times, lower is better; of bandwidths, higher.".into());
        }
        if groups.contains(&Direction::Write.name()) {
            notes.push("A write ends when the CPU has taken the data, before the bus has carried it.".into());
        }
        Chart {
            title: self.title(are_copies),
            facts: self.setup.facts(),
            notes,
            sizes: if are_copies { "size of the copy" } else { "size of the buffer" },
            columns: if are_copies { 2 } else { 3 },
            is_comparable: are_copies,
            panels,
        }
    }

    /// The measure, and the methods.
    fn title(&self, are_copies: bool) -> String {
        let emulated = if self.setup.emulated() { "emulated, not PCIe: " } else { "" };
        let measure = if are_copies { "Copies through a mapping" } else { "Time of calls" };
        let methods = unique(self.records.iter().map(|record| &record.method[..]));
        match &methods[..] {
            [first, _, _, _, _, ..] => format!("{emulated}{measure}: {first} and {} others", methods.len() - 1),
            few => format!("{emulated}{measure}: {}", few.join(", ")),
        }
    }

    /// One curve per method, and those that were not measured.
    fn panel(&self, group: &str, quantity: Quantity) -> Panel {
        let methods = unique(self.records.iter().map(|record| &record.method[..]));
        let mut curves = Vec::new();
        for (number, method) in methods.iter().enumerate() {
            let points = self.points(group, method, |record| record.point(quantity));
            curves.push(Curve { label: (*method).into(), style: Style::Solid(number), points });
        }
        type Field = fn(&Record) -> Option<f64>;
        let references: [(&str, Field); 3] = [
            ("round trips", |record| record.floor_ns),
            ("UCX, tuned", |record| record.tuned_ns),
            ("UCX, default", |record| record.default_ns),
        ];
        for (label, field) in references {
            let points = self.points(group, methods[0], |record| record.reference(quantity, field(record)?));
            curves.push(Curve { label: label.into(), style: Style::Reference, points });
        }
        curves.retain(|curve| !curve.points.is_empty());

        let direction = direction(group);
        let (unit, of) = match quantity {
            Quantity::Time => ("s", "time of a call"),
            Quantity::Bandwidth => ("B/s", "bandwidth"),
        };
        let title = match direction {
            Some(Direction::Write) => format!("Writes: {of}"),
            Some(Direction::Read) => format!("Reads: {of}"),
            None => group.to_owned(),
        };
        let ceiling = match self.setup.pcie_in_use() {
            Some(link) if quantity == Quantity::Bandwidth && direction == Some(Direction::Write) => Some(Ceiling {
                label: link.to_string(),
                value: link.bytes_per_second(),
                above: "gray: faster than the bus, part of the data is still in the CPU",
            }),
            _ => None,
        };
        Panel { title, unit, curves, ceiling }
    }

    /// Points of a method at the first alignment.
    fn points(&self, group: &str, method: &str, point: impl Fn(&Record) -> Option<Point>) -> Vec<Point> {
        let mut points = Vec::new();
        for record in &self.records {
            let is_first = record.alignments() == self.records[0].alignments();
            if is_first && record.direction == group && record.method == method {
                points.extend(point(record));
            }
        }
        points
    }
}

impl Record {
    fn alignments(&self) -> (usize, usize) {
        (self.alignment_bytes, self.host_alignment_bytes)
    }

    /// The median with its range. Logarithmic axes have no 0.
    fn point(&self, quantity: Quantity) -> Option<Point> {
        let mut point = self.reference(quantity, self.p50_ns?)?;
        for end in [self.p0_ns, self.p99_ns].into_iter().flatten() {
            if end > 0.0 {
                let value = self.value(quantity, end);
                point.low = point.low.min(value);
                point.high = point.high.max(value);
            }
        }
        Some(point)
    }

    /// A point without range.
    fn reference(&self, quantity: Quantity, ns: f64) -> Option<Point> {
        if ns <= 0.0 || self.size_bytes == 0 {
            return None;
        }
        let value = self.value(quantity, ns);
        Some(Point { size: self.size_bytes as f64, value, low: value, high: value })
    }

    fn value(&self, quantity: Quantity, ns: f64) -> f64 {
        match quantity {
            Quantity::Time => ns / 1e9,
            Quantity::Bandwidth => self.size_bytes as f64 / (ns / 1e9),
        }
    }
}

/// The direction of this name, if it is one.
fn direction(name: &str) -> Option<Direction> {
    Direction::BOTH.into_iter().find(|direction| direction.name() == name)
}

/// Each text once, in the order of the first ones.
fn unique<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut unique = Vec::new();
    for text in texts {
        if !unique.contains(&text) {
            unique.push(text);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::measure::results::tests::{results, timed, wrong};
    use serde_json::{Value, json};

    fn chart(setup: &Value, records: &Value) -> Chart {
        let document = json!({ "setup": setup, "records": records });
        serde_json::from_value::<Document>(document).unwrap().chart()
    }

    fn setup(mapping: &str) -> Value {
        let mut setup = serde_json::to_value(results([timed(1.0), timed(1.0)]).setup).unwrap();
        setup["pcie"] = json!({ "generation": 5, "lanes": 16 });
        setup["libraries"] = json!([{
            "label": "a", "file": "a.so", "version": "2.6", "driver_version": "2.5", "memory": "cuMemAlloc",
            "device_address": 0, "mapped_address": 0, "mapped_size": 0, "page_size": 0, "wc_mapping": true,
            "mapping_type": mapping,
        }]);
        setup
    }

    fn copy(method: &str, direction: &str, size: usize) -> Value {
        json!({
            "method": method, "direction": direction, "size_bytes": size, "alignment_bytes": 0,
            "p0_ns": 500.0, "p50_ns": 1000.0, "p99_ns": 4000.0,
        })
    }

    #[test]
    fn directions_have_panels_of_their_own_and_methods_have_colors() {
        let copies = ["write", "read"].map(|direction| ["a", "b"].map(|method| copy(method, direction, 2000)));
        let chart = chart(&setup("write-combining"), &json!(copies.concat()));
        let titles = chart.panels.iter().map(|panel| &panel.title[..]).collect::<Vec<_>>();
        let expected = ["Writes: time of a call", "Reads: time of a call", "Writes: bandwidth", "Reads: bandwidth"];
        assert_eq!(titles, expected);
        let styles = |panel: usize| chart.panels[panel].curves.iter().map(|curve| curve.style).collect::<Vec<_>>();
        assert_eq!(styles(0), [Style::Solid(0), Style::Solid(1)]);
        assert_eq!(styles(3), [Style::Solid(0), Style::Solid(1)]);
        let point = |panel: usize| chart.panels[panel].curves[0].points[0];
        assert_eq!(point(0), Point { size: 2000.0, value: 1e-6, low: 5e-7, high: 4e-6 });
        assert_eq!(point(2), Point { size: 2000.0, value: 2e9, low: 5e8, high: 4e9 });
    }

    #[test]
    fn bus_limits_the_bandwidth_of_writes_that_take_it() {
        let ceilings = |mapping| {
            let copies = json!([copy("a", "write", 1), copy("a", "read", 1)]);
            let panels = chart(&setup(mapping), &copies).panels.into_iter();
            panels.map(|panel| panel.ceiling.map(|ceiling| ceiling.label)).collect::<Vec<_>>()
        };
        assert_eq!(ceilings("write-combining"), [None, None, Some("PCIe 5.0 x16".into()), None]);
        assert_eq!(ceilings("cached"), [None, None, None, None]);
    }

    #[test]
    fn only_the_first_alignment_is_drawn() {
        let mut unaligned = copy("a", "read", 64);
        unaligned["alignment_bytes"] = json!(1);
        let chart = chart(&setup("cached"), &json!([copy("a", "read", 1), unaligned, copy("a", "read", 4)]));
        let sizes = chart.panels[0].curves[0].points.iter().map(|point| point.size);
        assert_eq!(sizes.collect::<Vec<_>>(), [1.0, 4.0]);
    }

    #[test]
    fn failures_are_not_drawn_but_the_floor_is() {
        let results = results([timed(2000.0), wrong("byte 1")]);
        let chart = chart(&setup("cached"), &serde_json::to_value(results.records()).unwrap());
        let curves = chart.panels[0].curves.iter();
        let labels: Vec<_> = curves.map(|curve| (&curve.label[..], curve.style)).collect();
        assert_eq!(labels, [("a", Style::Solid(0)), ("round trips", Style::Reference)]);
    }

    #[test]
    fn calls_have_panels_of_their_own() {
        let record = |call| json!({ "library": "a", "call": call, "size_bytes": 65536, "p50_ns": 5.0 });
        let chart = chart(&setup("cached"), &json!([record("pin"), record("map")]));
        let titles = chart.panels.iter().map(|panel| &panel.title[..]);
        assert_eq!(titles.collect::<Vec<_>>(), ["pin", "map"]);
        assert_eq!((chart.columns, chart.panels[0].unit), (3, "s"));
    }

    #[test]
    fn title_says_what_was_measured_and_that_a_gpu_is_emulated() {
        let mut setup = setup("cached");
        let copies = json!([copy("a", "read", 1), copy("b", "read", 1)]);
        assert_eq!(chart(&setup, &copies).title, "Copies through a mapping: a, b");
        let many = ["a", "b", "c", "d", "e"].map(|method| copy(method, "read", 1));
        assert_eq!(chart(&setup, &json!(many)).title, "Copies through a mapping: a and 4 others");
        setup["gpus"] = json!([{ "number": 0, "name": "gdremu GPU", "pci_address": "" }]);
        let emulated = chart(&setup, &copies);
        assert_eq!(emulated.title, "emulated, not PCIe: Copies through a mapping: a, b");
        assert!(!emulated.facts.iter().any(|fact| fact.contains("PCIe")), "{:?}", emulated.facts);
    }

    #[test]
    fn facts_are_those_that_results_depend_on() {
        let facts = chart(&setup("cached"), &json!([copy("a", "read", 1)])).facts;
        assert_eq!(
            facts.join("; "),
            "gdrcopy copylat; GPU; cached mapping; libgdrapi 2.6; gdrdrv 2.5; CUDA 13.0; PCIe 5.0 x16; CPU 4; 1970-01-01"
        );
    }

    /// `make pictures` mends it.
    #[test]
    fn picture_in_docs_is_that_of_its_data() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
        let document: Document = serde_json::from_str(&read("data/compare-h200.json")).unwrap();
        assert_eq!(read("compared.svg"), document.chart().svg());
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = draw(&json!({ "usable": true }), Path::new("/nowhere")).unwrap_err();
        assert_eq!(refused.to_string(), "these are no results over size");
    }
}
