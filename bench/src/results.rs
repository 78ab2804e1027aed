//! What was measured, and the ratios that may be told of it.
#![forbid(unsafe_code)]

use gdrcopy_tools::floor;
use gdrcopy_tools::stats::Times;
use serde::Serialize;

use crate::options::Direction;
use crate::plan::Point;

#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) setup: Setup,
    /// What the methods are called. Others are compared with the first.
    pub(crate) methods: Vec<String>,
    /// How many of them are libraries: the first so many.
    pub(crate) libraries: usize,
    /// One plain 4-byte load from the mapping.
    pub(crate) load: Times,
    pub(crate) rows: Vec<Row>,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Setup {
    pub(crate) command: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) gpu: String,
    pub(crate) cuda_version: i32,
    pub(crate) cpu_model: String,
    /// The CPU that measured; none if it was not tied to one.
    pub(crate) cpu: Option<usize>,
    pub(crate) mapping_type: String,
    /// Whether the host side was thrown out of the caches before each call.
    pub(crate) cold: bool,
}

/// A point, and what each method made of it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) outcomes: Vec<Outcome>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Every byte was right; this is how long a call took.
    Timed(Times),
    /// A byte was wrong: this one.
    Failed(String),
    /// Too slow to be worth the wait.
    LeftOut,
}

impl Outcome {
    /// The median in nanoseconds; none if there is nothing that may be told.
    pub(crate) fn median(&self) -> Option<f64> {
        match self {
            Outcome::Timed(times) => Some(times.median),
            Outcome::Failed(_) | Outcome::LeftOut => None,
        }
    }
}

impl Row {
    /// How many times as long as the first method this one takes.
    pub(crate) fn ratio(&self, method: usize) -> Option<f64> {
        let (time, first) = (self.outcomes[method].median()?, self.outcomes[0].median()?);
        (first > 0.0).then(|| time / first)
    }

    /// Bytes a nanosecond.
    pub(crate) fn bandwidth(&self, method: usize) -> Option<f64> {
        let time = self.outcomes[method].median()?;
        (time > 0.0).then(|| self.point.size as f64 / time)
    }
}

impl Results {
    /// Nanoseconds of one round trip to the GPU and back; none on a machine where loads make none.
    pub(crate) fn round_trip(&self) -> Option<f64> {
        floor::round_trip(&self.load)
    }

    /// Nanoseconds that a read takes at least; writes wait for nobody.
    pub(crate) fn floor(&self, row: &Row) -> Option<f64> {
        let is_read = row.point.direction == Direction::From;
        let round_trip = self.round_trip().filter(|_| is_read)?;
        Some(round_trip * row.point.round_trips() as f64)
    }

    /// How many times the floor a read takes.
    pub(crate) fn floor_ratio(&self, row: &Row, method: usize) -> Option<f64> {
        Some(row.outcomes[method].median()? / self.floor(row)?)
    }

    /// The copies that were wrong: method, point, and what.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &Point, &str)> {
        self.rows.iter().flat_map(|row| {
            let outcomes = self.methods.iter().zip(&row.outcomes);
            outcomes.filter_map(|(method, outcome)| match outcome {
                Outcome::Failed(why) => Some((method.as_str(), &row.point, why.as_str())),
                Outcome::Timed(_) | Outcome::LeftOut => None,
            })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn timed(ns: f64) -> Outcome {
        Outcome::Timed(Times::of(vec![ns]))
    }

    /// Reads of 2 KiB by two methods, on a machine whose round trip takes a microsecond.
    pub(crate) fn results(outcomes: [Outcome; 2]) -> Results {
        Results {
            setup: Setup {
                command: "compare --lib a --lib b".into(),
                time: 0,
                gpu: "GPU".into(),
                cuda_version: 13000,
                cpu_model: "CPU".into(),
                cpu: Some(4),
                mapping_type: "write-combining".into(),
                cold: false,
            },
            methods: vec!["a".into(), "b".into()],
            libraries: 2,
            load: Times::of(vec![1000.0]),
            rows: vec![Row {
                point: Point {
                    direction: Direction::From,
                    size: 2048,
                    alignment: 0,
                    host_alignment: 0,
                },
                outcomes: outcomes.into(),
            }],
        }
    }

    #[test]
    fn ratios_are_to_the_first_method_and_to_the_floor() {
        let results = results([timed(2100.0), timed(4200.0)]);
        let row = &results.rows[0];
        assert_eq!(row.ratio(1), Some(2.0));
        assert_eq!(results.floor(row), Some(2000.0));
        assert_eq!(results.floor_ratio(row, 0), Some(1.05));
        assert_eq!(results.failures().count(), 0);
    }

    #[test]
    fn nothing_is_told_of_a_wrong_copy() {
        for outcomes in [
            [timed(1.0), Outcome::Failed("byte 1".into())],
            [Outcome::Failed("byte 1".into()), timed(1.0)],
        ] {
            let results = results(outcomes);
            assert_eq!(results.rows[0].ratio(1), None);
            assert_eq!(results.failures().count(), 1);
        }
        let results = results([timed(1.0), Outcome::Failed("byte 1".into())]);
        assert_eq!(results.floor_ratio(&results.rows[0], 1), None);
        assert_eq!(results.rows[0].bandwidth(1), None);
    }

    #[test]
    fn a_load_from_a_cache_is_no_round_trip() {
        let mut results = results([timed(1.0), timed(1.0)]);
        results.load = Times::of(vec![3.0]);
        assert_eq!(results.floor_ratio(&results.rows[0], 0), None);
    }
}
