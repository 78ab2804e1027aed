//! Pictures of results over size, from their JSON, which is that of this run, or a file of docs/data.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::session::Setup;
use crate::output::check_writable;
use crate::output::plot::{Curve, Panel, Picture, Point};

/// The picture of what is measured over size.
#[derive(Debug, Default, Args)]
pub(crate) struct Plot {
    /// Draw an SVG chart over size
    #[arg(long = "plot", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Plot {
    /// Fails if the file cannot be written.
    pub(crate) fn check(&self) -> Result<()> {
        check_writable(self.file.as_deref())
    }

    /// Draws results, if the user asked for it.
    pub(crate) fn draw(&self, document: &impl Serialize) -> Result<()> {
        match &self.file {
            Some(file) => draw(document, file),
            None => Ok(()),
        }
    }
}

/// The parts of any tool's results that a picture needs.
#[derive(Deserialize)]
struct Document {
    /// In place of the setup's.
    title: Option<String>,
    #[serde(default)]
    facts: Vec<String>,
    #[serde(default)]
    setup: Setup,
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(alias = "library")]
    method: String,
    /// A direction, or the name of a call.
    #[serde(alias = "call")]
    direction: String,
    size_bytes: usize,
    p50_ns: Option<f64>,
    p0_ns: Option<f64>,
    p99_ns: Option<f64>,
    floor_ns: Option<f64>,
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
    document.picture().write(file)
}

impl Document {
    fn picture(&self) -> Picture {
        let groups = unique(self.records.iter().map(|record| &record.direction[..]));
        let mut panels = Vec::new();
        for quantity in [Quantity::Time, Quantity::Bandwidth] {
            for group in &groups {
                if quantity == Quantity::Time || ["write", "read"].contains(group) {
                    panels.push(self.panel(group, quantity));
                }
            }
        }
        panels.retain(|panel| !panel.curves.is_empty());
        let methods = unique(self.records.iter().map(|record| &record.method[..]));
        let emulated = if self.setup.emulated() { "emulated, not PCIe: " } else { "" };
        let mut facts = self.facts.clone();
        if self.title.is_none() {
            facts.extend(self.setup.facts());
        }
        facts.push("medians, with the range from P0 to P99; both axes are logarithmic".into());
        if groups.contains(&"write") {
            facts.push("a write ends when the CPU has taken the data, before the bus has carried it".into());
        }
        let title = match &self.title {
            Some(title) => title.clone(),
            None => format!("{emulated}gdrcopy {}: {}", self.setup.tool, methods.join(", ")),
        };
        Picture { title, facts, panels }
    }

    /// One curve per method, and the limits.
    fn panel(&self, group: &str, quantity: Quantity) -> Panel {
        let methods = unique(self.records.iter().map(|record| &record.method[..]));
        let mut curves = Vec::new();
        let mut floors = Vec::new();
        for (number, method) in methods.iter().enumerate() {
            let mut points = Vec::new();
            for record in &self.records {
                if record.direction == group && record.method == *method {
                    points.extend(record.point(quantity));
                    if number == 0 {
                        floors.extend(record.limit(quantity, record.floor_ns));
                    }
                }
            }
            curves.push(Curve { label: (*method).into(), color: Some(number), points });
        }
        curves.push(Curve { label: "round trips".into(), color: None, points: floors });
        curves.retain(|curve| !curve.points.is_empty());
        if group == "write"
            && quantity == Quantity::Bandwidth
            && let Some(link) = self.setup.pcie_in_use()
            && let Some(first) = curves.first()
        {
            let value = link.bytes_per_second();
            let points = first.points.iter().map(|point| Point { value, low: value, high: value, ..*point });
            curves.push(Curve { label: link.to_string(), color: None, points: points.collect() });
        }
        match quantity {
            Quantity::Time => Panel { title: format!("{group}: time"), unit: "s", curves },
            Quantity::Bandwidth => Panel { title: format!("{group}: bandwidth"), unit: "B/s", curves },
        }
    }
}

impl Record {
    /// The median with its range. Logarithmic axes have no 0.
    fn point(&self, quantity: Quantity) -> Option<Point> {
        let mut point = self.limit(quantity, self.p50_ns)?;
        for end in [self.p0_ns, self.p99_ns] {
            if let Some(end) = self.limit(quantity, end) {
                point.low = point.low.min(end.value);
                point.high = point.high.max(end.value);
            }
        }
        Some(point)
    }

    /// A point without range.
    fn limit(&self, quantity: Quantity, ns: Option<f64>) -> Option<Point> {
        let seconds = ns? / 1e9;
        let size = self.size_bytes as f64;
        if seconds <= 0.0 || size == 0.0 {
            return None;
        }
        let value = match quantity {
            Quantity::Time => seconds,
            Quantity::Bandwidth => size / seconds,
        };
        Some(Point { size, value, low: value, high: value })
    }
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
    use serde_json::{Value, json};

    fn picture(mapping: &str, gpu: &str, records: Value) -> Picture {
        let library = json!({
            "label": "a", "file": "a.so", "version": "2.6", "driver_version": "2.5", "memory": "cuMemAlloc",
            "device_address": 0, "mapped_address": 0, "mapped_size": 0, "page_size": 0,
            "mapping_type": mapping,
        });
        let setup = Setup { tool: "copylat".into(), cuda_version: 13000, cpu: Some(4), ..Setup::default() };
        let mut setup = serde_json::to_value(setup).unwrap();
        setup["pcie"] = json!({ "generation": 5, "lanes": 16 });
        setup["libraries"] = json!([library]);
        setup["gpus"] = json!([{ "number": 0, "name": gpu, "pci_address": "" }]);
        let document = json!({ "setup": setup, "records": records });
        serde_json::from_value::<Document>(document).unwrap().picture()
    }

    fn copy(method: &str, direction: &str, size: usize) -> Value {
        json!({
            "method": method, "direction": direction, "size_bytes": size,
            "p0_ns": 500.0, "p50_ns": 1000.0, "p99_ns": 4000.0,
        })
    }

    fn labels(panel: &Panel) -> Vec<&str> {
        panel.curves.iter().map(|curve| &curve.label[..]).collect()
    }

    #[test]
    fn directions_have_panels_of_their_own_and_the_bus_limits_writes_that_take_it() {
        let copies = ["write", "read"].map(|direction| ["a", "b"].map(|method| copy(method, direction, 2000)));
        let picture = picture("write-combining", "GPU", json!(copies.concat()));
        let titles: Vec<_> = picture.panels.iter().map(|panel| &panel.title[..]).collect();
        assert_eq!(titles, ["write: time", "read: time", "write: bandwidth", "read: bandwidth"]);
        let of_panels: Vec<_> = picture.panels.iter().map(labels).collect();
        assert_eq!(of_panels, [&["a", "b"][..], &["a", "b"], &["a", "b", "PCIe 5.0 x16"], &["a", "b"]]);
        let point = |panel: usize| picture.panels[panel].curves[0].points[0];
        assert_eq!(point(0), Point { size: 2000.0, value: 1e-6, low: 5e-7, high: 4e-6 });
        assert_eq!(point(2), Point { size: 2000.0, value: 2e9, low: 5e8, high: 4e9 });
        let cached = self::picture("cached", "GPU", json!([copy("a", "write", 1)]));
        assert_eq!(labels(&cached.panels[1]), ["a"]);
    }

    #[test]
    fn floor_is_drawn_and_failures_are_not() {
        let mut wrong = copy("b", "read", 1);
        wrong["p50_ns"] = Value::Null;
        let mut small = copy("a", "read", 1);
        small["floor_ns"] = json!(900.0);
        let picture = picture("cached", "GPU", json!([small, wrong, copy("a", "read", 4)]));
        assert_eq!(labels(&picture.panels[0]), ["a", "round trips"]);
        let sizes: Vec<_> = picture.panels[0].curves[0].points.iter().map(|point| point.size).collect();
        assert_eq!(sizes, [1.0, 4.0]);
    }

    #[test]
    fn title_and_facts_say_what_was_measured_and_that_a_gpu_is_emulated() {
        let record = |call| json!({ "library": "a", "call": call, "size_bytes": 65536, "p50_ns": 5.0 });
        let real = picture("cached", "GPU", json!([record("pin"), record("map")]));
        assert_eq!((&real.title[..], real.panels.len()), ("gdrcopy copylat: a", 2));
        assert_eq!(
            real.facts[..8].join("; "),
            "GPU; cached mapping; a: libgdrapi 2.6; gdrdrv 2.5; CUDA 13.0; PCIe 5.0 x16; CPU 4; 1970-01-01"
        );
        let emulated = picture("cached", "gdremu GPU", json!([record("pin")]));
        assert_eq!(emulated.title, "emulated, not PCIe: gdrcopy copylat: a");
        assert!(!emulated.facts.iter().any(|fact| fact.contains("PCIe")), "{:?}", emulated.facts);
    }

    /// `make pictures` mends it.
    #[test]
    fn pictures_in_docs_are_those_of_their_data() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
        for (data, picture) in [("compare-h200", "compared"), ("ucx-h100", "ucx-latency")] {
            let document: Document = serde_json::from_str(&read(&format!("data/{data}.json"))).unwrap();
            assert_eq!(read(&format!("{picture}.svg")), document.picture().svg().unwrap());
        }
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = draw(&json!({ "usable": true }), Path::new("/nowhere")).unwrap_err();
        assert_eq!(refused.to_string(), "these are no results over size");
    }
}
