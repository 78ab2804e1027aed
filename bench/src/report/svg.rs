//! A chart of time over size.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;
use gdrcopy_tools::chart::{self, Curve, Panel};

use crate::options::Direction;
use crate::results::{Results, Row};

/// Draws the results at the first alignments to a file.
pub(crate) fn write(results: &Results, file: &Path) -> Result<()> {
    let setup = &results.setup;
    let title = format!("{}, {} mapping", setup.gpu, setup.mapping_type);
    let panel = Panel {
        quantity: "ns a call, median".into(),
        curves: curves(results),
    };
    chart::write(file, &title, &[panel])
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
                is_limit: false,
            });
        }
    }
    let floor = |row: &Row| Some((row.point.size as f64, results.floor(row)?));
    curves.push(Curve {
        label: "floor of reads".into(),
        points: column(Direction::From).filter_map(floor).collect(),
        is_limit: true,
    });
    curves.retain(|curve| !curve.points.is_empty());
    curves
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
