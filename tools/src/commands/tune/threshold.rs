//! The times of UCX's messages, and the choice of UCX's settings with which no measured message gets slower.
#![forbid(unsafe_code)]

use serde::Serialize;

/// The settings with which UCX sends the messages that are timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// UCX chooses between eager and rendezvous by its built-in latency and bandwidth.
    Default,
    /// UCX chooses between eager and rendezvous by the latency and bandwidth that tune has measured for the mapping.
    /// Messages in host memory are not measured in this mode, because they do not use the mapping.
    Model,
    /// UCX uses the measured latency and bandwidth, and a threshold by which it sends messages of all sizes eagerly.
    Eager,
    /// UCX uses the measured latency and bandwidth, and a threshold by which it sends all messages by rendezvous.
    Rendezvous,
}

impl Mode {
    pub(super) const ALL: [Mode; 4] = [Mode::Default, Mode::Model, Mode::Eager, Mode::Rendezvous];
}

/// The times of messages of one size on one route, such as within the memory of one GPU.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Messages {
    pub(super) route: String,
    pub(super) size_bytes: usize,
    /// The median time of a message in each run, in nanoseconds, by mode.
    pub(super) runs_ns: [Vec<f64>; Mode::ALL.len()],
}

impl Messages {
    fn runs(&self, mode: Mode) -> &[f64] {
        &self.runs_ns[mode as usize]
    }

    /// Returns the median of the runs of a mode.
    pub(super) fn median(&self, mode: Mode) -> Option<f64> {
        let mut runs = self.runs(mode).to_vec();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len() / 2).copied()
    }

    /// Returns whether eager messages take no longer than messages by rendezvous.
    fn is_best_eager(&self) -> bool {
        match (self.median(Mode::Eager), self.median(Mode::Rendezvous)) {
            (Some(eager), Some(rendezvous)) => eager <= rendezvous,
            _ => false,
        }
    }

    /// Returns whether all runs of a mode take over 5 % more than the median of another mode. One slow run can be
    /// chance. A mode that was not measured counts as slower than one that was.
    fn is_slower(&self, mode: Mode, than: Mode) -> bool {
        let Some(other) = self.median(than) else {
            return false;
        };
        self.runs(mode).iter().all(|&time| time > SLOWER * other)
    }
}

/// A time counts as slower than another if it is more than this many times as long.
const SLOWER: f64 = 1.05;

/// The settings to use, according to the measured times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Choice {
    /// Use the measured latency and bandwidth (the model), and rendezvous for messages of this size and more.
    Threshold(usize),
    /// Use the measured latency and bandwidth (the model), without a threshold for rendezvous.
    Model,
    /// UCX's built-in latency and bandwidth. With the measured ones, messages of this size would be slower.
    Default(usize),
}

/// Chooses a threshold, the size from which UCX uses rendezvous. It is the largest one with which some messages are
/// faster than in [`Mode::Model`], no message is slower than in [`Mode::Default`], and no message that UCX then sends
/// eagerly from GPU memory would be faster by rendezvous. If there is none, chooses the model, or UCX's built-in
/// numbers if the model makes messages slower.
pub(super) fn choose(messages: &[Messages], host: &str) -> Choice {
    let mut sizes: Vec<_> = messages.iter().map(|row| row.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // The largest size cannot be the threshold, because the times of larger messages are not known.
    sizes.pop();
    for &size in sizes.iter().rev() {
        let mut gains = false;
        let mut loses = false;
        for row in messages {
            let is_eager = row.size_bytes <= size;
            let mode = if is_eager { Mode::Eager } else { Mode::Rendezvous };
            gains |= row.is_slower(Mode::Model, mode);
            loses |= row.is_slower(mode, Mode::Default);
            loses |= is_eager && row.route != host && !row.is_best_eager();
        }
        if gains && !loses {
            return Choice::Threshold(size + 1);
        }
    }
    match messages.iter().find(|row| row.route != host && row.is_slower(Mode::Model, Mode::Default)) {
        Some(row) => Choice::Default(row.size_bytes),
        None => Choice::Model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns messages with these sizes and times. The times are in the order of [`Mode::ALL`]; 0 means not measured.
    fn table(route: &str, rows: &[(usize, [f64; 4])]) -> Vec<Messages> {
        let runs = |time: f64| if time > 0.0 { vec![time, time * 1.2, time] } else { vec![] };
        let row = |&(size_bytes, times): &(usize, [f64; 4])| Messages {
            route: route.into(),
            size_bytes,
            runs_ns: times.map(runs),
        };
        rows.iter().map(row).collect()
    }

    /// Times of messages within the memory of an H100, without UCX's transport cuda_ipc. Each row has the size, and the
    /// times in the modes default, model, eager and rendezvous.
    const H100: [(usize, [f64; 4]); 6] = [
        (512, [2.6, 2.1, 2.1, 150.0]),
        (4096, [157.0, 9.6, 6.6, 157.0]),
        (8192, [155.0, 155.0, 11.5, 155.0]),
        (16384, [157.0, 158.0, 22.9, 157.0]),
        (32768, [18.8, 17.2, 41.5, 17.2]),
        (65536, [22.0, 22.0, 80.0, 22.0]),
    ];

    #[test]
    fn threshold_slows_neither_host_memory_nor_other_gpus() {
        for (route, times, expected) in [
            // Between the GPUs, eager messages are always the fastest, so only the times in `H100` limit the threshold.
            ("cuda 0-1", [9.0, 9.0, 1.0, 9.0], Choice::Threshold(16385)),
            // By default, UCX sends host memory by rendezvous from 8 KiB on, and eager messages are slower.
            ("host", [2.0, 2.0, 3.0, 2.0], Choice::Threshold(4097)),
            // By default, UCX sends host memory eagerly at all sizes, and rendezvous is slower.
            ("host", [2.0, 2.0, 2.0, 3.0], Choice::Model),
            ("cuda 0-1", [9.0, 9.0, 11.5, 9.0], Choice::Threshold(4097)),
            // A time of 0 means failure: between the two GPUs all messages fail; in host memory, only eager ones fail.
            ("cuda 0-1", [0.0, 0.0, 0.0, 0.0], Choice::Threshold(4097)),
            ("host", [2.0, 2.0, 0.0, 2.0], Choice::Threshold(4097)),
        ] {
            let mut all = table("cuda", &H100);
            all.extend(table(route, &[(8192, times), (65536, times)]));
            assert_eq!(choose(&all, "host"), expected, "{route} {times:?}");
        }
    }

    #[test]
    fn threshold_without_gain_is_left_out() {
        let rows = [(512, [2.0, 2.0, 2.0, 9.0]), (4096, [9.0, 9.0, 20.0, 9.0]), (8192, [9.0, 9.0, 40.0, 9.0])];
        assert_eq!(choose(&table("cuda", &rows), "host"), Choice::Model);
    }

    #[test]
    fn model_that_makes_messages_slower_is_left_out() {
        let rows = [(512, [2.0, 2.2, 2.2, 9.0]), (4096, [157.0, 157.0, 9.0, 157.0])];
        assert_eq!(choose(&table("cuda", &rows), "host"), Choice::Default(512));
    }

    #[test]
    fn slower_is_more_than_5_percent_and_chance() {
        let row = |runs: &[f64], default: &[f64]| {
            let runs_ns = [default.to_vec(), runs.to_vec(), vec![], vec![]];
            Messages { route: "cuda".into(), size_bytes: 1, runs_ns }.is_slower(Mode::Model, Mode::Default)
        };
        assert!(!row(&[2.08], &[2.0]));
        assert!(row(&[2.12], &[2.0]));
        // The model is not slower if one of its three runs takes only as long as the default's median.
        assert!(!row(&[2.5, 2.0, 2.5], &[2.0, 2.0, 2.0]));
        assert!(row(&[2.5, 2.2, 2.5], &[2.0, 2.0, 9.0]));
        assert!(!row(&[2.5, 2.2, 2.5], &[2.0, 2.2, 9.0]));
    }
}
