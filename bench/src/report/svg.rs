//! A chart of time over size, both on logarithmic axes.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use plotters::prelude::*;

use crate::options::Direction;
use crate::results::{Results, Row};

const SIZE: (u32, u32) = (1100, 700);
const FONT: &str = "sans-serif";

/// A line of the chart: (bytes, nanoseconds).
struct Curve {
    label: String,
    points: Vec<(f64, f64)>,
}

/// Draws the results at the first alignments to a file.
pub(crate) fn write(results: &Results, file: &Path) -> Result<()> {
    let curves = curves(results);
    let all = || curves.iter().flat_map(|curve| &curve.points).copied();
    ensure!(all().next().is_some(), "there is nothing to draw");
    draw(results, &curves, file).map_err(|error| anyhow!("{}: {error}", file.display()))
}

/// One curve a method and direction, and the floor of reads.
fn curves(results: &Results) -> Vec<Curve> {
    let Some(first) = results.rows.first().map(|row| row.point) else {
        return Vec::new();
    };
    let column = |direction| {
        results.rows.iter().filter(move |row| {
            let point = row.point;
            (point.direction, point.alignment, point.host_alignment)
                == (direction, first.alignment, first.host_alignment)
        })
    };
    let mut curves = Vec::new();
    for direction in [Direction::To, Direction::From] {
        for (i, method) in results.methods.iter().enumerate() {
            let place =
                |row: &Row| Some((row.point.size as f64, row.outcomes[i].median()?.max(1.0)));
            curves.push(Curve {
                label: format!("{method}, {}", direction.verb()),
                points: column(direction).filter_map(place).collect(),
            });
        }
    }
    let floor = |row: &Row| Some((row.point.size as f64, results.floor(row)?));
    curves.push(Curve {
        label: "floor of reads".into(),
        points: column(Direction::From).filter_map(floor).collect(),
    });
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn draw(
    results: &Results,
    curves: &[Curve],
    file: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || curves.iter().flat_map(|curve| &curve.points).copied();
    let widest = all().map(|(bytes, _)| bytes).fold(2.0, f64::max);
    let highest = all().map(|(_, ns)| ns).fold(100.0, f64::max);
    let lowest = all().map(|(_, ns)| ns).fold(highest, f64::min).max(1.0);

    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "{}, {} mapping",
        results.setup.gpu, results.setup.mapping_type
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 22))
        .margin(16)
        .x_label_area_size(45)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (1.0..widest).log_scale(),
            (lowest..highest * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc("ns a call, median")
        .x_label_formatter(&|bytes| format!("{bytes:.0}"))
        .y_label_formatter(&|ns| format!("{ns:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for (i, curve) in curves.iter().enumerate() {
        let color = if curve.label.starts_with("floor") {
            BLACK.to_rgba()
        } else {
            Palette99::pick(i).to_rgba()
        };
        chart
            .draw_series(LineSeries::new(
                curve.points.iter().copied(),
                color.stroke_width(2),
            ))?
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
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Outcome;
    use crate::results::tests::{results, timed};

    #[test]
    fn failures_are_not_drawn_and_the_floor_is() {
        let results = results([timed(2000.0), Outcome::Failed("byte 1".into())]);
        let labels: Vec<_> = curves(&results)
            .into_iter()
            .map(|curve| curve.label)
            .collect();
        assert_eq!(labels, ["a, read", "floor of reads"]);
    }
}
