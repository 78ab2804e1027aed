//! UCX's model of the mapping, fitted to measured copies.
#![forbid(unsafe_code)]

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::measure::plan::{Direction, Point};
use crate::measure::results::{Results, mib_per_second};

/// The sizes whose times define the models; those between show how well the models fit.
const SIZES: [usize; 6] = [8, 64, 512, 4096, 32768, 65536];

/// The measured points, as the sizes of both directions.
pub(super) fn points() -> Vec<Point> {
    let of_direction = |direction| SIZES.map(|size| Point::spread(direction, size, 0, 0));
    Direction::BOTH.into_iter().flat_map(of_direction).collect()
}

/// A direction, where a copy takes the latency, and its size over the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Model {
    pub(super) latency_ns: f64,
    pub(super) mib_per_s: f64,
}

impl Model {
    /// The one that UCX has for CPUs and GPUs that it does not know.
    pub(super) fn default_of(direction: Direction) -> Model {
        let (latency_ns, mib_per_s) = match direction {
            Direction::Write => (400.0, 6911.0),
            Direction::Read => (1400.0, 250.0),
        };
        Model { latency_ns, mib_per_s }
    }

    /// The one that the measured copies have.
    pub(super) fn of(results: &Results, direction: Direction) -> Result<Model> {
        let rows = results.rows.iter();
        let of_direction = rows.filter(|row| row.point.direction == direction);
        let times: Vec<_> = of_direction.filter_map(|row| Some((row.point.size, row.times(0)?.median))).collect();
        ensure!(times.len() == SIZES.len(), "not all sizes were measured");
        let Some(model) = Model::through(times[0], times[times.len() - 1]) else {
            bail!(
                "a {} of {} bytes took no longer than one of {}: run it again on an idle CPU (--cpu)",
                direction.name(),
                SIZES[SIZES.len() - 1],
                SIZES[0]
            );
        };
        Ok(model)
    }

    /// The line through the times of the smallest and the largest copy.
    fn through(smallest: (usize, f64), largest: (usize, f64)) -> Option<Model> {
        let (bytes, ns) = (largest.0 - smallest.0, largest.1 - smallest.1);
        Some(Model { latency_ns: smallest.1, mib_per_s: mib_per_second(bytes, ns)? })
    }

    /// Nanoseconds that it expects of a copy of this size.
    pub(super) fn time(&self, bytes: usize) -> f64 {
        let bytes_per_ns = self.mib_per_s * f64::from(1 << 20) / 1e9;
        self.latency_ns + bytes as f64 / bytes_per_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_meets_the_smallest_and_the_largest_copy() {
        // 64 KiB at 1 GiB/s take 61035 ns.
        let model = Model::through((8, 1000.0), (65536, 62000.0)).unwrap();
        assert_eq!(model.latency_ns, 1000.0);
        assert!((model.time(65536) - 62000.0).abs() < 10.0, "{model:?}");
        assert_eq!(model.mib_per_s.round(), 1024.0);
        assert_eq!(Model::through((8, 1000.0), (65536, 1000.0)), None);
    }
}
