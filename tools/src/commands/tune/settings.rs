//! Computes values for environment variables of UCX and NCCL. Among them are the latency and the bandwidth from which
//! UCX computes how long a copy through a mapping of GPU memory takes.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use serde::Serialize;

use crate::measure::plan::{Direction, Point};
use crate::measure::results::{Results, mib_per_second};

pub(super) const BANDWIDTH: &str = "UCX_GDR_COPY_BW";
pub(super) const LATENCY: &str = "UCX_GDR_COPY_LAT";
pub(super) const THRESHOLD: &str = "UCX_RNDV_THRESH";

/// The latency and the bandwidth are computed from the times of copies of two sizes. This is the smaller size in bytes.
const SMALLEST: usize = 8;
/// The latency and the bandwidth are computed from the times of copies of two sizes. This is the larger size in bytes.
const LARGEST: usize = 65536;

/// Returns the copies to measure: copies of `SMALLEST` and of `LARGEST` bytes, in both directions.
pub(super) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for direction in Direction::BOTH {
        points.extend([SMALLEST, LARGEST].map(|size| Point::spread(direction, size, 0)));
    }
    points
}

/// UCX's model of copies in one direction. A copy takes the latency plus its size divided by the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Model {
    pub(super) latency_ns: f64,
    pub(super) mib_per_s: f64,
}

impl Model {
    /// Computes latency and bandwidth from the times of the measured copies in this direction.
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

    /// Returns the model with the time of the smallest copy as its latency, and a bandwidth computed from both times.
    /// Returns `None` if the largest copy takes no longer than the smallest.
    fn through(smallest_ns: f64, largest_ns: f64) -> Option<Model> {
        let mib_per_s = mib_per_second(LARGEST - SMALLEST, largest_ns - smallest_ns)?;
        Some(Model { latency_ns: smallest_ns, mib_per_s })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: String,
    purpose: &'static str,
}

impl Setting {
    /// Returns the settings that give UCX the measured latency and bandwidth of copies. UCX's `MBs` are MiB per second.
    /// The first value of the bandwidth, which is 0, is for all kinds of copies that the list does not name.
    pub(super) fn model(put: Model, get: Model) -> Vec<Setting> {
        vec![
            Setting {
                name: BANDWIDTH,
                value: format!("0MBs,get_dedicated:{:.0}MBs,put_shared:{:.0}MBs", get.mib_per_s, put.mib_per_s),
                purpose: "UCX: bandwidth of reads and writes; without it UCX's built-in numbers count",
            },
            Setting {
                name: LATENCY,
                value: format!("get:{:.0}ns,put:{:.0}ns", get.latency_ns, put.latency_ns),
                purpose: "UCX: latency of reads and writes",
            },
        ]
    }

    /// Returns the setting for the smallest size that UCX sends by rendezvous within a node. UCX itself chooses this
    /// size for messages between nodes.
    pub(super) fn threshold(bytes: impl ToString) -> Setting {
        Setting {
            name: THRESHOLD,
            value: format!("auto,intra:{}", bytes.to_string()),
            purpose: "UCX: messages within a node go by rendezvous from this size on",
        }
    }

    pub(super) fn nccl() -> Setting {
        Setting { name: "NCCL_GDRCOPY_ENABLE", value: "1".into(), purpose: "NCCL: use libgdrapi; the default is 0" }
    }

    /// Returns the paragraph of a shell fragment that sets the variable.
    pub(super) fn text(&self) -> String {
        let Setting { name, value, purpose } = self;
        format!("\n# {purpose}\n{name}={value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_syntax_of_ucx() {
        let model = |latency_ns, mib_per_s| Model { latency_ns, mib_per_s };
        let settings = Setting::model(model(130.4, 19999.6), model(1000.0, 987.2));
        let values: Vec<_> = settings.iter().map(|setting| &setting.value[..]).collect();
        assert_eq!(values, ["0MBs,get_dedicated:987MBs,put_shared:20000MBs", "get:1000ns,put:130ns"]);
        assert_eq!(Setting::threshold(24577).value, "auto,intra:24577");
    }

    #[test]
    fn model_meets_the_smallest_and_the_largest_copy() {
        // The sizes of the two copies differ by 64 KiB less 8 bytes. At 1 GiB/s, these bytes take 61028 ns.
        let model = Model::through(1000.0, 62028.0).unwrap();
        assert_eq!(model.latency_ns, 1000.0);
        assert_eq!(model.mib_per_s.round(), 1024.0);
        assert_eq!(Model::through(1000.0, 1000.0), None);
    }
}
