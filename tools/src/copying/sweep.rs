//! Many kinds of copies, one after the other.

use anyhow::Result;

use super::{Bench, Copy, Direction, Method, Outcome};
use crate::floor;
use crate::progress;
use crate::session::{Session, Setup};
use crate::stats::Times;

/// What to copy, how often, and by which methods.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Sizes of the copies in bytes.
    pub sizes: Vec<usize>,
    /// Where in the GPU buffer they begin.
    pub offset: usize,
    /// How often each write is made; 0: no writes.
    pub writes: usize,
    /// How often each read is made; 0: no reads.
    pub reads: usize,
    /// CUDA's own copies, too.
    pub cumemcpy: bool,
    /// The GPU writes the memory before each copy.
    pub cold: bool,
    /// Check every byte.
    pub verify: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Results {
    /// Where it was measured, and what.
    pub setup: Setup,
    /// Whether every byte was checked.
    pub verified: bool,
    /// What the methods are called: the libraries first.
    pub methods: Vec<String>,
    /// One plain 4-byte load from the mapping.
    pub load: Times,
    /// In the order of the sweep: all writes, then all reads.
    pub rows: Vec<Row>,
    /// The user has ended it early.
    pub interrupted: bool,
}

/// A copy, and what each method made of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The copy.
    pub copy: Copy,
    /// How often it was made.
    pub iterations: usize,
    /// One for each method.
    pub results: Vec<MethodResult>,
}

/// What one method made of a copy.
#[derive(Clone, Debug)]
pub struct MethodResult {
    /// The function that was called.
    pub function: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

impl Sweep {
    /// Measures all of it, or until the user wants to end.
    ///
    /// # Errors
    /// A call of CUDA's or of a library's fails.
    pub fn run(&self, session: &Session) -> Result<Results> {
        let subjects = &session.subjects;
        let mut methods: Vec<_> = subjects.iter().map(Method::library).collect();
        if self.cumemcpy {
            methods.push(Method::cumemcpy(&subjects[0]));
        }
        let largest = self.sizes.iter().copied().max().unwrap_or(1);
        let mut bench = Bench::new(session.gpu, session.interrupt.clone(), self.verify, largest)?;
        bench.cold = self.cold;
        let mut results = Results {
            setup: session.setup.clone(),
            verified: self.verify,
            methods: methods.iter().map(|method| method.label.into()).collect(),
            load: floor::loads(&subjects[0].mapped, &bench.clock),
            rows: Vec::new(),
            interrupted: false,
        };
        let copies: Vec<_> = self.copies().collect();
        let progress = progress::bar(copies.len());
        for (copy, iterations) in copies {
            progress.set_message(format!("{} {} B", copy.direction.name(), copy.size));
            let functions = methods.iter().map(|method| method.function(copy.direction));
            let outcomes = bench.measure(&methods, copy, iterations)?;
            results.rows.push(Row {
                copy,
                iterations,
                results: functions
                    .zip(outcomes)
                    .map(|(function, outcome)| MethodResult { function, outcome })
                    .collect(),
            });
            progress.inc(1);
            if session.interrupt.asked() {
                results.interrupted = true;
                break;
            }
        }
        progress.finish_and_clear();
        let load = floor::loads(&subjects[0].mapped, &bench.clock);
        results.load = results.load.shorter(load);
        Ok(results)
    }

    fn copies(&self) -> impl Iterator<Item = (Copy, usize)> {
        let directions = [
            (Direction::Write, self.writes),
            (Direction::Read, self.reads),
        ];
        let wanted = directions
            .into_iter()
            .filter(|&(_, iterations)| iterations > 0);
        wanted.flat_map(move |(direction, iterations)| {
            self.sizes.iter().map(move |&size| {
                let copy = Copy {
                    direction,
                    size,
                    offset: self.offset,
                };
                (copy, iterations)
            })
        })
    }
}

/// The bandwidth of copies of so many bytes that take so many nanoseconds; none if they take no time.
pub fn mib_per_second(bytes: usize, ns: f64) -> Option<f64> {
    let (mib, seconds) = (bytes as f64 / f64::from(1 << 20), ns / 1e9);
    (seconds > 0.0).then(|| mib / seconds)
}

/// 1, 2, 4, 8, … up to this number.
pub fn powers_of_two(largest: usize) -> impl Iterator<Item = usize> {
    (0..=largest.max(1).ilog2()).map(|exponent| 1 << exponent)
}

impl Row {
    /// The times of a method; none if it copied a byte wrong.
    pub fn times(&self, method: usize) -> Option<&Times> {
        self.results[method].outcome.times.as_ref()
    }

    /// How many times as long as the first library's calls those of this method take, by medians.
    pub fn ratio(&self, method: usize) -> Option<f64> {
        let (time, first) = (self.times(method)?.median, self.times(0)?.median);
        (method > 0 && first > 0.0).then(|| time / first)
    }

    /// MiB a second, by the mean.
    pub fn bandwidth(&self, method: usize) -> Option<f64> {
        mib_per_second(self.copy.size, self.times(method)?.mean)
    }
}

impl Results {
    /// Nanoseconds that the copy takes at least: reads wait for round trips, writes for nobody.
    pub fn floor(&self, copy: Copy) -> Option<f64> {
        let round_trip = floor::round_trip(&self.load)?;
        let lines = (copy.offset % floor::LINE + copy.size).div_ceil(floor::LINE);
        let trips = round_trip * floor::round_trips(lines) as f64;
        (copy.direction == Direction::Read).then_some(trips)
    }

    /// The copies that were wrong.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|row| {
            let methods = self.methods.iter().zip(&row.results);
            methods.filter_map(|(method, result)| {
                let wrong = result.outcome.wrong.as_ref()?;
                let (size, function) = (row.copy.size, result.function);
                Some(format!("{method}: {function} of {size} bytes: {wrong}"))
            })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn timed(ns: f64) -> Outcome {
        Outcome {
            times: Some(Times::of(vec![ns])),
            wrong: None,
        }
    }

    pub(crate) fn wrong(why: &str) -> Outcome {
        Outcome {
            times: None,
            wrong: Some(why.into()),
        }
    }

    /// Reads of 2 KiB by two libraries, on a machine whose round trip takes a microsecond.
    pub(crate) fn results(outcomes: [Outcome; 2]) -> Results {
        let copy = Copy {
            direction: Direction::Read,
            size: 2048,
            offset: 0,
        };
        let result = |outcome| MethodResult {
            function: "gdr_copy_from_mapping",
            outcome,
        };
        Results {
            setup: Setup {
                tool: "copylat",
                command: "gdrcopy copylat".into(),
                gpus: Vec::new(),
                gpu: 0,
                gpu_node: None,
                cuda_version: 13000,
                cpu: Some(4),
                libraries: Vec::new(),
            },
            verified: true,
            methods: vec!["a".into(), "b".into()],
            load: Times::of(vec![1000.0]),
            rows: vec![Row {
                copy,
                iterations: 1,
                results: outcomes.map(result).into(),
            }],
            interrupted: false,
        }
    }

    #[test]
    fn numbers_are_derived_from_times() {
        let results = results([timed(2000.0), timed(4000.0)]);
        let row = &results.rows[0];
        assert_eq!(row.ratio(0), None);
        assert_eq!(row.ratio(1), Some(2.0));
        assert_eq!(results.floor(row.copy), Some(2000.0));
        // 2 KiB in 2 µs are 1 GB/s, or 976.5625 MiB/s.
        assert_eq!(row.bandwidth(0).unwrap().round(), 977.0);
        assert_eq!(results.failures().count(), 0);
    }

    #[test]
    fn sizes_double() {
        assert_eq!(powers_of_two(8).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(7).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(powers_of_two(1).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn nothing_is_told_of_a_wrong_copy() {
        let results = results([timed(2000.0), wrong("byte 1")]);
        let row = &results.rows[0];
        assert_eq!(row.ratio(1), None);
        assert_eq!(row.bandwidth(1), None);
        let told: Vec<_> = results.failures().collect();
        assert_eq!(told, ["b: gdr_copy_from_mapping of 2048 bytes: byte 1"]);
    }
}
