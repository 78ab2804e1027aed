//! The CPU's side of the ping-pong, which runs the rounds and times them.
#![forbid(unsafe_code)]

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::buffers::Buffers;
use super::gpu_kernel::{GpuKernel, Running};
use super::options::{Options, Producer};
use crate::measure::clock::Clock;
use crate::measure::sampler::take_turns;
use crate::measure::session::Session;
use crate::output::Progress;
use crate::system::interrupt::Interrupt;

/// The results of a library's rounds.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The nanoseconds of each timed round.
    pub(super) samples: Vec<f64>,
    /// The number of words of data that differ from those that the other side has written.
    pub(super) wrong: u64,
}

/// The number of turns of each library, if there are several libraries. They take turns so that disturbances affect all
/// of them alike.
const TURNS: usize = 10;

/// The number of untimed rounds at the beginning of each turn, while the GPU kernel is starting.
const WARMUP: u32 = 10;

/// The number of times that the CPU polls the GPU's answer between two readings of the clock.
const POLLS: u32 = 1024;

/// The time between two checks for a failed GPU kernel and for Ctrl-C.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Runs all rounds with all libraries, and returns the results of each library.
pub(super) fn run(session: &Session, options: &Options) -> Result<Vec<Rounds>> {
    let kernel = GpuKernel::load(session.gpu)?;
    let mut buffers = Vec::new();
    for method in &session.methods {
        buffers.push(Buffers::new(session.gpu, method, &options.exchange)?);
    }
    let turns = if buffers.len() > 1 { TURNS } else { 1 };
    let mut run = Run {
        options,
        kernel: &kernel,
        clock: Clock::calibrate(),
        interrupt: &session.interrupt,
        progress: Progress::new(turns * buffers.len()),
        expected: vec![0; options.exchange.size.0],
        seen: vec![0; options.exchange.size.0],
    };
    let mut all = Vec::new();
    all.resize_with(buffers.len(), Rounds::default);
    take_turns(buffers.len(), turns, &session.interrupt, |index, turn| {
        // All turns together have `iterations` rounds.
        let rounds = (options.iterations + turn as u32) / turns as u32;
        run.progress.begin(session.methods[index].label.clone());
        run.turn(&buffers[index], rounds, &mut all[index]).with_context(|| session.methods[index].label.clone())?;
        run.progress.end();
        Ok(())
    })?;
    Ok(all)
}

struct Run<'a> {
    options: &'a Options,
    kernel: &'a GpuKernel,
    clock: Clock,
    interrupt: &'a Interrupt,
    progress: Progress,
    /// The data that the round must deliver.
    expected: Vec<u8>,
    /// The data that has arrived.
    seen: Vec<u8>,
}

impl Run<'_> {
    /// Measures the times of this many more rounds, or of fewer if interrupted.
    fn turn(&mut self, buffers: &Buffers, rounds: u32, all: &mut Rounds) -> Result<()> {
        if rounds == 0 || self.interrupt.requested() {
            return Ok(());
        }
        buffers.clear()?;
        let options = self.options;
        let rounds = WARMUP + rounds;
        let running = self.kernel.launch(buffers, options, rounds)?;
        for round in 1..=rounds {
            if self.interrupt.requested() {
                break;
            }
            fill(&mut self.expected, round);
            let mut answered = Ok(false);
            let clock = self.clock;
            let time = clock.time(|| answered = self.round_trip(buffers, &running, round));
            if !answered? {
                break;
            }
            if round > WARMUP {
                all.samples.push(time);
            }
            if options.exchange.mode == Producer::Gpu {
                all.wrong += differences(&self.seen, &self.expected);
            }
            self.progress.done(round as usize, rounds as usize);
        }
        if self.interrupt.requested() {
            drop(running);
        } else {
            running.finish()?;
        }
        all.wrong += buffers.wrong_on_gpu()?;
        Ok(())
    }

    /// Makes one round, which the caller times. Returns true once the GPU has answered, or false if Ctrl-C came before.
    /// It is an error if the GPU kernel has failed, or does not answer in time.
    fn round_trip(&mut self, buffers: &Buffers, running: &Running, round: u32) -> Result<bool> {
        let options = self.options;
        if options.exchange.mode == Producer::Cpu {
            buffers.write_data(&self.expected)?;
        }
        buffers.request(round)?;
        let start = Instant::now();
        let time_limit = Duration::from_secs(options.timeout);
        let mut polls = 0u32;
        let mut next_heartbeat = start + HEARTBEAT;
        while buffers.answer()? != round {
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(POLLS) {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            if now >= next_heartbeat {
                running.check()?;
                if self.interrupt.requested() {
                    return Ok(false);
                }
                next_heartbeat = now + HEARTBEAT;
            }
            if !time_limit.is_zero() && now - start > time_limit {
                bail!("the GPU has not answered round {round} within {} s", options.timeout);
            }
            thread::yield_now();
        }
        if options.exchange.mode == Producer::Gpu {
            buffers.read_data(&mut self.seen)?;
        }
        Ok(true)
    }
}

/// Fills in the data of a round, which kernel.ptx computes in the same manner.
fn fill(data: &mut [u8], round: u32) {
    let first = round.wrapping_mul(0x9e37_79b1);
    for (index, word) in data.chunks_mut(4).enumerate() {
        let value = first.wrapping_add(index as u32).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

fn differences(seen: &[u8], expected: &[u8]) -> u64 {
    let mut differences = 0;
    for (seen, expected) in seen.chunks(4).zip(expected.chunks(4)) {
        differences += u64::from(seen != expected);
    }
    differences
}
