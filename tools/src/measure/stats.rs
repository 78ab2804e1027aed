//! Percentiles and mean of samples.
#![forbid(unsafe_code)]

use serde::Serialize;

/// A summary of samples, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) p0: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) mean: f64,
    /// Their number.
    pub(crate) samples: usize,
}

impl Times {
    /// Summarizes at least one sample.
    pub(crate) fn new(mut samples: Vec<f64>) -> Times {
        samples.sort_by(f64::total_cmp);
        // The nearest rank.
        let percentile = |percent: usize| {
            let rank = (samples.len() * percent).div_ceil(100);
            samples[rank.max(1) - 1]
        };
        Times {
            p0: percentile(0),
            median: percentile(50),
            p99: percentile(99),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
            samples: samples.len(),
        }
    }

    /// The one with the smaller median.
    pub(crate) fn shorter(self, other: Times) -> Times {
        if other.median < self.median { other } else { self }
    }
}

/// Several independent runs. It has the one whose median is the median of all, the lower one of two, and the
/// smallest median.
pub(crate) fn of_runs(mut runs: Vec<Times>) -> Option<(Times, f64)> {
    runs.sort_by(|a, b| a.median.total_cmp(&b.median));
    let middle = runs.get(runs.len().saturating_sub(1) / 2)?;
    Some((*middle, runs[0].median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_represented_by_the_median_one() {
        let run = |median| Times::new(vec![median]);
        let middle = |medians: &[f64]| of_runs(medians.iter().map(|&ns| run(ns)).collect());
        assert_eq!(middle(&[5.0, 1.0, 9.0]), Some((run(5.0), 1.0)));
        assert_eq!(middle(&[5.0, 9.0]), Some((run(5.0), 5.0)));
        assert_eq!(middle(&[7.0]), Some((run(7.0), 7.0)));
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn shorter_compares_medians() {
        let (short, long) = (Times::new(vec![1.0, 9.0]), Times::new(vec![2.0, 3.0]));
        assert_eq!(short.shorter(long), short);
        assert_eq!(long.shorter(short), short);
    }

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let times = Times::new((1..=100).rev().map(f64::from).collect());
        let expected = Times { p0: 1.0, median: 50.0, p99: 99.0, mean: 50.5, samples: 100 };
        assert_eq!(times, expected);
        assert_eq!(Times::new(vec![7.0]).p99, 7.0);
        assert_eq!(Times::new(vec![3.0, 1.0, 2.0]).median, 2.0);
    }
}
