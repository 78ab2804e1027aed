//! Charts of the number and time of copies over size.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;

use super::report::Report;
use super::summary::{Copies, Summary};
use crate::measure::plan::Direction;
use crate::output::svg::{Chart, Curve, Panel, Point, Style};

/// Draws the copies of all processes to an SVG file.
pub(crate) fn draw(report: &Report, file: &Path) -> Result<()> {
    let panels = report.total().into_iter().flat_map(panels);
    Chart {
        title: format!("gdrcopy trace: copies of {}", report.run.command.join(" ")),
        facts: vec![report.statement.clone()],
        notes: vec![
            "Each point stands for the sizes up to the next one. Both axes are logarithmic.".into(),
            "Times are medians; bands reach to P99.".into(),
        ],
        sizes: "size of the copy",
        columns: 2,
        is_comparable: false,
        panels: panels.collect(),
    }
    .write(file)
}

fn panels(summary: &Summary) -> [Panel; 2] {
    type Value = fn(&Copies) -> (f64, f64);
    let quantities: [(&str, &'static str, Value); 2] = [
        ("Number of copies", "", |copies| (copies.count as f64, copies.count as f64)),
        // Copies of no tick need a place on a logarithmic axis.
        ("Time of a copy", "s", |copies| (copies.p50_ns.max(1.0) / 1e9, copies.p99_ns.max(1.0) / 1e9)),
    ];
    quantities.map(|(title, unit, value)| {
        let curves = Direction::BOTH.iter().enumerate().map(|(i, &direction)| {
            let copies = summary.copies.iter().filter(|copies| copies.direction == direction);
            let points = copies.map(|copies| {
                let (value, high) = value(copies);
                Point { size: copies.size_bytes as f64, value, low: value, high }
            });
            let style = if i == 0 { Style::Solid(0) } else { Style::Dashed(1) };
            let label = if i == 0 { "writes" } else { "reads" };
            Curve { label: label.into(), style, points: points.collect() }
        });
        let curves = curves.filter(|curve| !curve.points.is_empty()).collect();
        Panel { title: title.into(), unit, curves, ceiling: None }
    })
}
