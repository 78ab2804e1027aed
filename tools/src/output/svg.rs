//! Charts with logarithmic axes: panels below each other, over the same range of sizes.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::system::bytes::Bytes;

const WIDTH: u32 = 1100;
const PANEL_HEIGHT: u32 = 600;
const TITLE_HEIGHT: u32 = 50;
const FONT: &str = "sans-serif";

/// Distinguishable on white also with color blindness: Okabe and Ito's, without yellow.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) label: String,
    /// Size in bytes, and the value there. Both are above 0.
    pub(crate) points: Vec<(f64, f64)>,
    /// Drawn in black: a limit, not a measurement.
    pub(crate) is_limit: bool,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Quantity and unit of the vertical axis.
    pub(crate) quantity: String,
    pub(crate) curves: Vec<Curve>,
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.curves.iter().flat_map(|curve| &curve.points).copied()
    }
}

/// Draws the panels to an SVG file.
pub(crate) fn write(file: &Path, title: &str, panels: &[Panel]) -> Result<()> {
    let sizes: Vec<f64> = panels.iter().flat_map(Panel::points).map(|(x, _)| x).collect();
    ensure!(!sizes.is_empty(), "there is nothing to draw");
    let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = sizes.iter().copied().fold(smallest * 2.0, f64::max);
    draw(file, title, panels, (smallest, largest))
        .map_err(|error| anyhow!("{}: {error}", file.display()))
}

fn draw(file: &Path, title: &str, panels: &[Panel], sizes: (f64, f64)) -> Drawn {
    let height = TITLE_HEIGHT + PANEL_HEIGHT * panels.len() as u32;
    let root = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let below = root.titled(title, (FONT, 22))?;
    for (area, panel) in below.split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(area, panel, sizes)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &Area, panel: &Panel, (smallest, largest): (f64, f64)) -> Drawn {
    let values = || panel.points().map(|(_, y)| y);
    let highest = values().fold(f64::MIN_POSITIVE, f64::max);
    let lowest = values().fold(highest, f64::min);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(45)
        .y_label_area_size(80)
        .build_cartesian_2d(
        (smallest..largest).log_scale().base(2.0),
        (lowest / 1.2..highest * 1.5).log_scale(),
    )?;
    chart
        .configure_mesh()
        .x_desc("size")
        .y_desc(&panel.quantity)
        .x_labels(14)
        .x_label_formatter(&|bytes| Bytes(*bytes as usize).to_string())
        .y_label_formatter(&|value| number(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (i, curve) in panel.curves.iter().enumerate() {
        let color = match curve.is_limit {
            true => BLACK.to_rgba(),
            false => COLORS[i % COLORS.len()].to_rgba(),
        };
        // Dots, as a curve of one point has no line.
        let dots = curve.points.iter();
        chart.draw_series(dots.map(|&point| Circle::new(point, 2, color.filled())))?;
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))?
            .label(&curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

/// A label of the vertical axis.
fn number(value: f64) -> String {
    match value {
        _ if value >= 10.0 => format!("{value:.0}"),
        _ if value >= 0.1 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_contains_every_curve() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("chart.svg");
        let curve = |label: &str, is_limit| Curve {
            label: label.into(),
            points: vec![(1.0, 5.0), (4096.0, 700.0)],
            is_limit,
        };
        let panel = |quantity: &str| Panel {
            quantity: quantity.into(),
            curves: vec![curve("measured", false), curve("floor", true)],
        };
        write(&file, "A title", &[panel("ns"), panel("MiB/s")]).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        for text in ["A title", "measured", "floor", "ns", "MiB/s", "4 KiB"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(write(&file, "nothing", &[]).is_err());
    }
}
