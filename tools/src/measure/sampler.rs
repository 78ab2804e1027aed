//! Verifies the copies of each method, such as a library or memcpy, and times them while the methods take turns.
#![forbid(unsafe_code)]

use std::ops::Range;

use anyhow::Result;

use super::clock::Clock;
use super::method::Method;
use super::plan::{Direction, Point};
use super::results::{Record, Results};
use super::session::Session;
use super::stats::Times;
use super::verify::Verifier;
use crate::cuda::PinnedBuffer;
use crate::output::Progress;
use crate::system::interrupt::Interrupt;

/// The most samples into which the calls are divided if the user gives the number of calls.
const SAMPLES: usize = 100;

/// The fewest samples if the user gives the time in which to measure, instead of the number of calls.
const MIN_SAMPLES: usize = 21;
/// The most samples if the user gives the time in which to measure, instead of the number of calls.
const MAX_SAMPLES: usize = 501;

/// The byte that the GPU writes to take memory out of the CPU's caches.
const COLD: u8 = 0x5c;

#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) points: Vec<(Point, Repetitions)>,
    /// True if the GPU writes the memory before each call, which removes it from the CPU's caches.
    pub(crate) cold_device: bool,
}

/// The number of copies to make.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repetitions {
    /// This many calls, at least 1, divided into at most 100 samples.
    Calls(usize),
    /// The number of samples that fit into this many nanoseconds, but at least 21 and at most 501. Each sample times a
    /// batch of calls.
    Budget(f64),
}

impl Sweep {
    /// Measures each [`Point`] with all methods of the session. Stops if the user interrupts.
    pub(crate) fn run(&self, session: &Session) -> Result<Results> {
        let methods = &session.methods;
        let first = &methods[0];
        let longest = self.points.iter().map(|(point, _)| point.host_len()).max();
        let mut sampler = Sampler {
            clock: Clock::calibrate(),
            interrupt: &session.interrupt,
            host: PinnedBuffer::alloc(longest.unwrap_or(1))?,
            cold_device: self.cold_device,
            progress: Progress::new(self.points.len()),
        };
        let before = first.loads(&sampler.clock);
        let mut records: Vec<Record> = Vec::new();
        for &(point, repetitions) in &self.points {
            if session.interrupt.requested() {
                break;
            }
            sampler.progress.begin(format!("{} {} B", point.direction.name(), point.size));
            records.extend(sampler.measure(methods, point, repetitions)?);
            sampler.progress.end();
        }
        drop(sampler.progress);
        let after = first.loads(&sampler.clock);
        Ok(Results {
            setup: session.setup.clone(),
            interrupted: session.interrupt.requested(),
            cold_device: self.cold_device,
            load: if after.median < before.median { after } else { before },
            records,
        })
    }
}

#[derive(Debug)]
struct Sampler<'a> {
    clock: Clock,
    interrupt: &'a Interrupt,
    host: PinnedBuffer,
    cold_device: bool,
    progress: Progress,
}

/// The result of several calls that were timed together.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The mean time of a call in nanoseconds.
    ns: f64,
    calls: usize,
}

impl Sampler<'_> {
    /// Measures copies of one direction, size and alignment. Returns a record for each method, or no record if the user
    /// interrupts before anything is timed.
    fn measure(&mut self, methods: &[Method], point: Point, repetitions: Repetitions) -> Result<Vec<Record>> {
        let mut verifier = Verifier::new(point, methods[0].buffer.len());
        let mut records = Vec::new();
        let mut timed = Vec::new();
        for (i, method) in methods.iter().enumerate() {
            if self.interrupt.requested() {
                return Ok(Vec::new());
            }
            let function = method.function(point.direction);
            verifier.fill_device(method)?;
            let error = verifier.check(point.windows, method, &mut self.host, &self.clock)?;
            if error.is_none() {
                timed.push(i);
            }
            records.push(Record { method: method.label.clone(), function, point, error, ..Record::default() });
        }
        verifier.fill_host(&mut self.host);
        let batch = point.batch();
        let turns = self.warm_up(methods, &timed, &point, repetitions)?;
        let mut taken = 0;
        let all_samples = take_turns(timed.len(), turns, self.interrupt, |place, turn| {
            let sample = self.sample(&methods[timed[place]], &point, repetitions.calls_of(turn, turns, batch))?;
            taken += 1;
            self.progress.done(taken, turns * timed.len());
            Ok(sample)
        })?;
        for (&i, samples) in timed.iter().zip(all_samples) {
            let first = records[0].times;
            let record = &mut records[i];
            record.iterations = samples.iter().map(|sample| sample.calls).sum();
            if !self.cold_device {
                let windows = usize::from(point.direction == Direction::Read);
                record.error = verifier.check(windows, &methods[i], &mut self.host, &self.clock)?;
            }
            if record.error.is_none() {
                record.set_times(Times::new(samples.iter().map(|sample| sample.ns).collect()), first);
            }
        }
        Ok(records)
    }

    /// Warms up caches, TLBs and branch predictors. Returns how many turns to make. A turn samples each method once.
    fn warm_up(
        &mut self,
        methods: &[Method],
        timed: &[usize],
        point: &Point,
        repetitions: Repetitions,
    ) -> Result<usize> {
        let batch = point.batch();
        match repetitions {
            Repetitions::Calls(calls) => {
                for &i in timed {
                    self.sample(&methods[i], point, 0..1)?;
                }
                Ok(calls.min(SAMPLES))
            }
            Repetitions::Budget(budget) => {
                let mut ns = 0.0;
                for first in [0, batch] {
                    ns = 0.0;
                    for &i in timed {
                        ns += self.sample(&methods[i], point, first..first + batch)?.ns * batch as f64;
                    }
                }
                Ok(turns_within(budget, ns))
            }
        }
    }

    /// Measures the time of these calls of a method, or of fewer if the user interrupts.
    fn sample(&mut self, method: &Method, point: &Point, calls: Range<usize>) -> Result<Sample> {
        method.drain();
        let most = if self.cold_device { 1 } else { calls_at_once(point.size) };
        let mut ns = 0.0;
        let mut call = calls.start;
        while call < calls.end {
            if self.cold_device {
                method.buffer.fill(COLD, point.device_offset(call) + point.size)?;
            }
            let now = most.min(calls.end - call);
            ns += method.time(point, call, now, &mut self.host, &self.clock)?;
            call += now;
            if self.interrupt.requested() {
                break;
            }
        }
        let calls = call - calls.start;
        Ok(Sample { ns: ns / calls as f64, calls })
    }
}

/// Returns the number of calls between two checks for an interrupt. Together, these calls take about a millisecond or
/// more, so the time of a check does not matter.
fn calls_at_once(size: usize) -> usize {
    const BYTES: usize = 16 << 20;
    // The shortest call takes about as long as copying this many bytes.
    const CALL: usize = 1 << 10;
    (BYTES / (size + CALL)).max(1)
}

impl Repetitions {
    /// Returns the indexes of the calls that are made in this turn.
    fn calls_of(self, turn: usize, turns: usize, batch: usize) -> Range<usize> {
        match self {
            Repetitions::Calls(all) => all * turn / turns..all * (turn + 1) / turns,
            Repetitions::Budget(_) => turn * batch..(turn + 1) * batch,
        }
    }
}

/// Returns the number of turns to take with this budget, if one turn takes `ns`.
fn turns_within(budget: f64, ns: f64) -> usize {
    ((budget / ns.max(1.0)) as usize).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

/// Takes one sample of each method in each turn. The order is reversed every other turn, so that disturbances affect
/// all methods alike. `sample` receives the numbers of the method and of the turn. One turn is made even after an
/// interrupt.
pub(crate) fn take_turns<Sample>(
    methods: usize,
    turns: usize,
    interrupt: &Interrupt,
    mut sample: impl FnMut(usize, usize) -> Result<Sample>,
) -> Result<Vec<Vec<Sample>>> {
    let mut samples: Vec<Vec<Sample>> = (0..methods).map(|_| Vec::new()).collect();
    for turn in 0..turns {
        for place in 0..methods {
            let method = if turn % 2 == 0 { place } else { methods - 1 - place };
            samples[method].push(sample(method, turn)?);
        }
        if interrupt.requested() {
            break;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_take_turns_in_alternating_order() {
        let interrupt = Interrupt::at(&[]).unwrap();
        let mut order = Vec::new();
        let samples = take_turns(2, 3, &interrupt, |method, turn| {
            order.push(method);
            Ok(10 * turn + method)
        });
        assert_eq!(samples.unwrap(), [[0, 10, 20], [1, 11, 21]]);
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
    }

    #[test]
    fn turns_make_every_call_once() {
        let repetitions = Repetitions::Calls(250);
        let mut next = 0;
        for turn in 0..SAMPLES {
            let calls = repetitions.calls_of(turn, SAMPLES, 16);
            assert_eq!(calls.start, next);
            next = calls.end;
        }
        assert_eq!(next, 250);
        assert_eq!(Repetitions::Budget(1.0).calls_of(2, 21, 16), 32..48);
    }

    #[test]
    fn budget_limits_the_number_of_turns() {
        for (budget, turns) in [(0.0, MIN_SAMPLES), (32e3, 100), (1e9, MAX_SAMPLES)] {
            assert_eq!(turns_within(budget, 320.0), turns);
        }
    }
}
