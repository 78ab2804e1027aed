//! The CPU's side: rounds, and how long each takes.
#![forbid(unsafe_code)]

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::board::{Board, Layout};
use super::kernel::{Kernel, Play};
use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::progress;
use crate::session::{Session, Setup};
use crate::stats::Times;

/// How the game is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) iterations: u32,
    /// How long the GPU may take to answer.
    pub(super) timeout: Option<Duration>,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) gpu_produces: bool,
    pub(super) verify: bool,
    pub(super) layout: Layout,
}

/// What came out.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) setup: Setup,
    pub(super) rules: Rules,
    pub(super) players: Vec<Player>,
    pub(super) interrupted: bool,
}

/// A library's results.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) label: String,
    /// None if no round was timed.
    pub(super) times: Option<Times>,
    /// Words of data that were not what the other side had written.
    pub(super) wrong: u64,
}

/// Times that two libraries take turns: what disturbs one of them disturbs the other, too.
const TURNS: u32 = 10;

/// Rounds at the beginning of each turn that are not timed: the kernel is just starting.
const WARMUP: u32 = 10;

/// How often the CPU looks for the answer before it looks at the clock.
const POLLS: u32 = 1024;

/// How often the CPU asks how the kernel and the user are.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Plays all rounds with all libraries.
///
/// # Errors
/// The GPU does not answer, or something else fails.
pub(super) fn play(session: &Session, rules: Rules) -> Result<Results> {
    let kernel = Kernel::load(session.gpu)?;
    let boards = session
        .subjects
        .iter()
        .map(|subject| Board::new(session.gpu, subject, rules.layout))
        .collect::<Result<Vec<_>>>()?;
    let mut game = Game {
        rules,
        kernel: &kernel,
        clock: Clock::calibrate(),
        interrupt: &session.interrupt,
        expected: vec![0; rules.layout.size],
        seen: vec![0; rules.layout.size],
    };
    let turns = if boards.len() > 1 { TURNS } else { 1 };
    let mut samples = vec![Vec::new(); boards.len()];
    let mut wrong = vec![0; boards.len()];
    let bar = progress::bar(turns as usize * boards.len());
    for turn in 0..turns {
        let share = |turn| u64::from(rules.iterations) * u64::from(turn) / u64::from(turns);
        let rounds = (share(turn + 1) - share(turn)) as u32;
        for (index, board) in boards.iter().enumerate() {
            let label = &session.subjects[index].named.label;
            wrong[index] += game
                .turn(board, rounds, &mut samples[index])
                .with_context(|| label.clone())?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let players = std::iter::zip(samples, wrong).zip(&session.subjects);
    Ok(Results {
        setup: session.setup.clone(),
        rules,
        players: players
            .map(|((samples, wrong), subject)| Player {
                label: subject.named.label.clone(),
                times: (!samples.is_empty()).then(|| Times::of(samples)),
                wrong,
            })
            .collect(),
        interrupted: session.interrupt.asked(),
    })
}

struct Game<'a> {
    rules: Rules,
    kernel: &'a Kernel,
    clock: Clock,
    interrupt: &'a Interrupt,
    /// The data of a round, and what arrived of it.
    expected: Vec<u8>,
    seen: Vec<u8>,
}

impl Game<'_> {
    /// Plays and times so many rounds, or fewer if the user has had enough. Returns how many words
    /// of data were wrong.
    fn turn(&mut self, board: &Board, rounds: u32, samples: &mut Vec<f64>) -> Result<u64> {
        if rounds == 0 || self.interrupt.asked() {
            return Ok(0);
        }
        board.clear()?;
        let play = Play {
            blocks: self.rules.blocks,
            threads: self.rules.threads,
            rounds: WARMUP + rounds,
            gpu_produces: self.rules.gpu_produces,
        };
        let running = self.kernel.launch(board, play)?;
        let mut wrong = 0;
        for round in 1..=play.rounds {
            if self.interrupt.asked() {
                break;
            }
            fill(&mut self.expected, round);
            let mut outcome = Ok(Answer::Given);
            let time = self.clock.time(|| {
                outcome = round_trip(
                    &self.rules,
                    board,
                    round,
                    &self.expected,
                    &mut self.seen,
                    || {
                        running.check()?;
                        Ok(self.interrupt.asked())
                    },
                );
            });
            match outcome? {
                Answer::Given => {}
                Answer::NotWanted => break,
                Answer::Late => {
                    let seconds = self.rules.timeout.unwrap_or_default().as_secs();
                    bail!("the GPU has not answered round {round} within {seconds} s");
                }
            }
            if round > WARMUP {
                samples.push(time);
            }
            if self.rules.gpu_produces && self.rules.verify {
                wrong += differences(&self.seen, &self.expected);
            }
        }
        if self.interrupt.asked() {
            drop(running);
        } else {
            running.finish()?;
        }
        if self.rules.verify {
            wrong += board.wrong_on_gpu()?;
        }
        Ok(wrong)
    }
}

/// What became of a request.
enum Answer {
    Given,
    /// The user wants the game to end.
    NotWanted,
    /// It took too long.
    Late,
}

/// One round: what is timed. Now and then it asks whether that is enough.
fn round_trip(
    rules: &Rules,
    board: &Board,
    round: u32,
    expected: &[u8],
    seen: &mut [u8],
    is_enough: impl Fn() -> Result<bool>,
) -> Result<Answer> {
    if !rules.gpu_produces {
        board.write_data(expected)?;
    }
    board.request(round)?;
    let start = Instant::now();
    let (mut polls, mut next_heartbeat) = (0u32, start + HEARTBEAT);
    while board.answer()? != round {
        polls = polls.wrapping_add(1);
        if !polls.is_multiple_of(POLLS) {
            std::hint::spin_loop();
            continue;
        }
        let now = Instant::now();
        if now >= next_heartbeat {
            if is_enough()? {
                return Ok(Answer::NotWanted);
            }
            next_heartbeat = now + HEARTBEAT;
        }
        if rules.timeout.is_some_and(|timeout| now - start > timeout) {
            return Ok(Answer::Late);
        }
        thread::yield_now();
    }
    if rules.gpu_produces {
        board.read_data(seen)?;
    }
    Ok(Answer::Given)
}

/// The data of a round, as kernel.ptx has it.
fn fill(data: &mut [u8], round: u32) {
    let first = round.wrapping_mul(0x9e37_79b1);
    for (index, word) in data.chunks_mut(4).enumerate() {
        let value = first.wrapping_add(index as u32).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// How many words differ.
fn differences(seen: &[u8], wanted: &[u8]) -> u64 {
    let words = seen.chunks(4).zip(wanted.chunks(4));
    words.filter(|(seen, wanted)| seen != wanted).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_differ_by_round_and_place() {
        let (mut one, mut two) = (vec![0; 11], vec![0; 11]);
        fill(&mut one, 1);
        fill(&mut two, 2);
        assert_eq!(one[..8], [0xb1, 0x79, 0x37, 0x9e, 0xb2, 0x79, 0x37, 0x9e]);
        assert_eq!(differences(&one, &one), 0);
        assert_eq!(differences(&one, &two), 3);
        two.copy_from_slice(&one);
        two[10] ^= 1;
        assert_eq!(differences(&one, &two), 1);
    }
}
