//! Times of methods that take turns.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::check::{self, GUARD};
use super::{Copy, Method};
use crate::clock::Clock;
use crate::cuda::{Gpu, PinnedBuffer};
use crate::interrupt::Interrupt;
use crate::stats::Times;

/// Samples that the iterations are divided into, where there are so many.
const SAMPLES: usize = 100;

/// What the GPU sets its memory to in order to own it.
const COLD: u8 = 0x5c;

/// What a method made of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nanoseconds a call; none if a byte was wrong.
    pub times: Option<Times>,
    /// What was wrong.
    pub wrong: Option<String>,
}

impl Outcome {
    fn checked(wrong: Option<String>) -> Outcome {
        Outcome { times: None, wrong }
    }
}

/// How to measure copies.
#[derive(Debug)]
pub struct Bench {
    /// The clock.
    pub clock: Clock,
    /// Says when to end.
    pub interrupt: Interrupt,
    /// Whether to check every byte first.
    pub verify: bool,
    /// Whether the GPU writes the memory before each copy, so that the CPU's caches have lost it.
    pub cold: bool,
    host: PinnedBuffer,
}

impl Bench {
    /// For copies of up to `largest` bytes.
    ///
    /// # Errors
    /// There is not enough pinned host memory.
    pub fn new(
        gpu: &'static Gpu,
        interrupt: Interrupt,
        verify: bool,
        largest: usize,
    ) -> Result<Bench> {
        Ok(Bench {
            clock: Clock::calibrate(),
            interrupt,
            verify,
            cold: false,
            host: PinnedBuffer::alloc(gpu, largest + 2 * GUARD)?,
        })
    }

    /// What each method makes of the copy, made `iterations` times, at least 1.
    ///
    /// # Errors
    /// A call of CUDA's or of a library's fails.
    pub fn measure(
        &mut self,
        methods: &[Method],
        copy: Copy,
        iterations: usize,
    ) -> Result<Vec<Outcome>> {
        let mut wrong = vec![None; methods.len()];
        if self.verify {
            for (method, wrong) in methods.iter().zip(&mut wrong) {
                *wrong = check::check(method, copy, &mut self.host, &self.clock)?;
            }
        }
        let sound: Vec<_> = (0..methods.len()).filter(|&i| wrong[i].is_none()).collect();
        let interrupt = self.interrupt.clone();
        let times = in_turn(sound.len(), iterations, &interrupt, |i, calls| {
            self.sample(&methods[sound[i]], copy, calls)
        })?;
        let mut outcomes: Vec<_> = wrong.into_iter().map(Outcome::checked).collect();
        for (i, times) in sound.into_iter().zip(times) {
            outcomes[i].times = Some(times);
            if self.verify && !self.cold {
                let last = check::check_last(&methods[i], copy, &mut self.host, &self.clock)?;
                if last.is_some() {
                    outcomes[i] = Outcome::checked(last);
                }
            }
        }
        Ok(outcomes)
    }

    /// Nanoseconds a call.
    fn sample(&mut self, method: &Method, copy: Copy, calls: usize) -> Result<f64> {
        let Bench { host, clock, .. } = self;
        if !self.cold {
            method.drain();
            return method.time(copy, host, GUARD, calls, clock);
        }
        let mut ns = 0.0;
        for _ in 0..calls {
            method.buffer.fill(COLD, copy.offset + copy.size)?;
            ns += method.time(copy, host, GUARD, 1, clock)?;
        }
        Ok(ns / calls as f64)
    }
}

/// Divides so many iterations, at least 1, into samples, and has the methods take turns, one sample
/// each, the order reversed at every other turn: what disturbs the machine disturbs all of them.
/// `sample` is told a method and a number of calls, and tells how long each call took. One turn is made
/// even if the user wants to end.
///
/// # Errors
/// Those of `sample`.
fn in_turn(
    methods: usize,
    iterations: usize,
    interrupt: &Interrupt,
    mut sample: impl FnMut(usize, usize) -> Result<f64>,
) -> Result<Vec<Times>> {
    let turns = iterations.min(SAMPLES);
    let mut samples = vec![Vec::new(); methods];
    // Caches, TLBs and branch predictors get to know each of them.
    for method in 0..methods {
        sample(method, 1)?;
    }
    for turn in 0..turns {
        let calls = iterations * (turn + 1) / turns - iterations * turn / turns;
        for place in 0..methods {
            let method = match turn % 2 {
                0 => place,
                _ => methods - 1 - place,
            };
            samples[method].push(sample(method, calls)?);
        }
        if interrupt.asked() {
            break;
        }
    }
    Ok(samples.into_iter().map(Times::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_take_turns_and_no_iteration_is_lost() {
        let interrupt = Interrupt::listen().unwrap();
        let mut calls = [0, 0];
        let mut order = Vec::new();
        let times = in_turn(2, 250, &interrupt, |method, count| {
            calls[method] += count;
            order.push(method);
            Ok(count as f64)
        });
        let times = times.unwrap();
        // One call more each, to warm up.
        assert_eq!(calls, [251, 251]);
        assert_eq!(order[..8], [0, 1, 0, 1, 1, 0, 0, 1]);
        assert_eq!(times[0].samples, SAMPLES);
        assert_eq!(times[1].p0, 2.0);
    }

    #[test]
    fn few_iterations_are_few_samples() {
        let interrupt = Interrupt::listen().unwrap();
        let times = in_turn(1, 3, &interrupt, |_, calls| Ok(calls as f64));
        assert_eq!(times.unwrap()[0].samples, 3);
    }
}
