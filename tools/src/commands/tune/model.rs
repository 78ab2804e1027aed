//! UCX's model of the mapping, by measured copies.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use serde::Serialize;

use crate::measure::plan::{Direction, Point};
use crate::measure::results::{Results, mib_per_second};

/// The sizes whose times define the models.
const SMALLEST: usize = 8;
const LARGEST: usize = 65536;

/// The measured points, both sizes in both directions.
pub(super) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for direction in Direction::BOTH {
        points.extend([SMALLEST, LARGEST].map(|size| Point::spread(direction, size, 0)));
    }
    points
}

/// A direction, where a copy takes the latency, and its size over the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Model {
    pub(super) latency_ns: f64,
    pub(super) mib_per_s: f64,
}

impl Model {
    /// The one that the measured copies have.
    pub(super) fn of(results: &Results, direction: Direction) -> Result<Model> {
        let mut medians = Vec::new();
        for record in &results.records {
            if let (Some(times), true) = (record.times, record.point.direction == direction) {
                medians.push(times.median);
            }
        }
        let [smallest, largest] = medians[..] else {
            bail!("not all sizes were measured");
        };
        let Some(model) = Model::through(smallest, largest) else {
            bail!(
                "a {} of {LARGEST} bytes took no longer than one of {SMALLEST}: run it again on an idle CPU (--cpu)",
                direction.name()
            );
        };
        Ok(model)
    }

    /// The line through the times of the smallest and the largest copy.
    fn through(smallest_ns: f64, largest_ns: f64) -> Option<Model> {
        let mib_per_s = mib_per_second(LARGEST - SMALLEST, largest_ns - smallest_ns)?;
        Some(Model { latency_ns: smallest_ns, mib_per_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_meets_the_smallest_and_the_largest_copy() {
        // 64 KiB at 1 GiB/s take 61035 ns.
        let model = Model::through(1000.0, 62028.0).unwrap();
        assert_eq!(model.latency_ns, 1000.0);
        assert_eq!(model.mib_per_s.round(), 1024.0);
        assert_eq!(Model::through(1000.0, 1000.0), None);
    }
}
