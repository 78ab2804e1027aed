//! The percentiles and the mean of samples.
#![forbid(unsafe_code)]

use serde::Serialize;

/// A summary of samples, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) samples: usize,
    #[serde(rename = "p0_ns")]
    pub(crate) p0: f64,
    #[serde(rename = "p50_ns")]
    pub(crate) median: f64,
    #[serde(rename = "p99_ns")]
    pub(crate) p99: f64,
    #[serde(rename = "mean_ns")]
    pub(crate) mean: f64,
}

impl Times {
    /// Summarizes at least one sample.
    pub(crate) fn new(mut samples: Vec<f64>) -> Times {
        samples.sort_by(f64::total_cmp);
        Times {
            samples: samples.len(),
            p0: percentile(&samples, 0),
            median: percentile(&samples, 50),
            p99: percentile(&samples, 99),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
        }
    }

    /// Returns the median divided by that of the first method.
    pub(crate) fn ratio(&self, first: Option<Times>) -> Option<f64> {
        let first = first?.median;
        if first > 0.0 { Some(self.median / first) } else { None }
    }
}

/// Returns a percentile of ascending samples, by the nearest rank.
fn percentile(samples: &[f64], percent: usize) -> f64 {
    let rank = (samples.len() * percent).div_ceil(100);
    samples[rank.max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let times = Times::new((1..=100).rev().map(f64::from).collect());
        let expected = Times { samples: 100, p0: 1.0, median: 50.0, p99: 99.0, mean: 50.5 };
        assert_eq!(times, expected);
        assert_eq!(Times::new(vec![7.0]).p99, 7.0);
        assert_eq!(Times::new(vec![3.0, 1.0, 2.0]).median, 2.0);
    }
}
