//! Makes random sequences of calls of the safe API under gdremu, and compares their results and the memory with a
//! model. Arguments are extreme, owners are dropped in any order, and some are leaked by `mem::forget`.
//!
//! The test checks:
//! - bytes of the GPU: every byte of the arena (memory that is pinned in parts) and of the chunks of pools is known.
//!   The test passes ranges of that memory to the API, which may not change the bytes around them. CUDA reads
//!   everything back, within and after a sequence;
//! - bytes of the host: the buffers that calls write to are parts of a larger buffer, all bytes of which are known;
//! - owners. Memory given to `Gdr::map_owned` is dropped once, and not before it is unmapped. Views that own their
//!   memory (the module `owned`) work when everything else is gone, in any thread;
//! - results: the model knows beforehand whether a call succeeds, and what a read returns;
//! - panics other than the documented ones, crashes, pins that are left although everything was dropped.
//!
//! The test cannot see:
//! - missing fences: gdremu's GPU memory is ordinary memory, so stores need no fence to arrive. The tests of
//!   copy_routines look at the instructions;
//! - stray reads of GPU memory, and races within the library that change no result. Two threads use disjoint parts of
//!   one slice, and one thread makes all other calls;
//! - forked children, GPU memory that is freed while it is pinned, contexts that are destroyed (see emulated/);
//! - borrows that outlive their owners, which the compiler refuses (see compile_fail/).
//!
//! The test starts new sequences for `FUZZ_SECONDS` (default 5), for all profiles of gdremu together. Each profile gets
//! at least one group of sequences. A failure prints a seed, and the calls of the shortest sequence that fails.
//! `FUZZ_SEED` repeats the group with this seed. Also pass the name of the test for the profile:
//!
//! ```text
//! FUZZ_SEED=7 cargo test -p gdrcopy --test fuzz fuzz::dmabuf
//! ```

mod access;
mod arrays;
mod batches;
mod buffers;
#[allow(dead_code, reason = "other tests call the rest")]
#[path = "../../../../tests/built/mod.rs"]
mod built;
#[path = "../../examples/cuda/mod.rs"]
mod cuda;
mod given;
mod isolated;
mod model;
mod ops;
mod owned;
mod owners;
mod pins;
mod pools;
mod sizes;
mod types;
#[path = "../../../../tests/under_gdremu/mod.rs"]
mod under_gdremu;
mod words;
mod world;

use std::env;
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRunner};
use under_gdremu::{Runner, tests};

/// The options of gdremu with which the test runs. Each profile is an emulated computer.
const PROFILES: &[&str] =
    &["", "--profile traditional", "--profile gdrdrv-2.4", "--profile dmabuf", "--profile cached", "--profile device"];
/// The number of sequences of calls that are run with one seed.
const GROUP: u32 = 16;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let Ok(number) = text.parse() else {
        panic!("{name}={text}");
    };
    Some(number)
}

fn main() {
    let mut runner = Runner::new("fuzz");
    // Pins that are left must not fail the test, because some sequences forget objects by `mem::forget`, and so leave
    // pins. `World::end` checks that all other sequences leave no pin.
    runner.finds_leaks = false;
    runner.add(tests![sequences_change_only_what_the_model_says], PROFILES);
    runner.run();
}

fn sequences_change_only_what_the_model_says() {
    let profile = under_gdremu::options();
    let time = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(5)) / PROFILES.len() as u32;
    let requested_seed = number("FUZZ_SEED");
    let mut seed = requested_seed.unwrap_or(u64::from(std::process::id()) << 20);
    let begun = Instant::now();
    loop {
        // The seed is printed before the sequences run, because one of them may hang.
        println!("fuzz: FUZZ_SEED={seed}");
        let config = Config {
            cases: GROUP,
            rng_algorithm: RngAlgorithm::ChaCha,
            rng_seed: RngSeed::Fixed(seed),
            failure_persistence: None,
            max_shrink_iters: 4_000,
            ..Config::default()
        };
        let result = TestRunner::new(config)
            .run(&ops::sequences(), |sequence| isolated::run(|| world::run(&sequence)).map_err(TestCaseError::fail));
        match result {
            Ok(()) => (),
            // `calls` is a text with the calls of the shortest sequence that fails, and their results.
            Err(TestError::Fail(calls, _)) => {
                panic!("FUZZ_SEED={seed} with {profile:?}, shortened: {calls}")
            }
            Err(abort) => panic!("FUZZ_SEED={seed}: {abort}"),
        }
        if requested_seed.is_some() || begun.elapsed() >= time {
            break;
        }
        seed += 1;
    }
}
