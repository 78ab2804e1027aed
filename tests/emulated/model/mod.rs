//! Compares libgdrapi with a small reference model (`world`), by random sequences of valid and invalid calls.
//!
//! `MODEL_CALLS` says how many calls to make in each mode (default 20,000). A failing sequence is shrunk, and printed
//! with the seed (`MODEL_SEED`) that reproduces it.

mod library;
mod mode;
mod ops;
mod world;

use std::cell::Cell;
use std::env;

use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};

use library::Library;
use mode::Mode;
use world::World;

use crate::cuda::Cuda;
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![behaves_as_the_model,];

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text}: not a number"),
    }
}

fn behaves_as_the_model() {
    let calls_to_make = number("MODEL_CALLS").unwrap_or(20_000);
    let mut seed = number("MODEL_SEED").unwrap_or(u64::from(std::process::id()) << 20);
    let mode = Mode::of_options();
    let library = Library::load();
    let cuda = Cuda::new();
    let calls = Cell::new(0);
    while calls.get() < calls_to_make {
        let config = Config {
            cases: 16,
            rng_algorithm: RngAlgorithm::ChaCha,
            rng_seed: RngSeed::Fixed(seed),
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..Config::default()
        };
        let result = TestRunner::new(config).run(&ops::ops(!mode.is_module), |ops| {
            let mut world = World::new(&library, &cuda, &mode);
            let run = ops.iter().try_for_each(|op| world.step(op));
            // Everything must be closed before proptest tries the next sequence, also after a failure.
            let end = world.end();
            calls.set(calls.get() + world.calls());
            run.and(end).map_err(TestCaseError::fail)
        });
        if let Err(failure) = result {
            panic!("MODEL_SEED={seed} in mode {mode:?}: {failure}");
        }
        seed += 1;
    }
    println!("model: {} calls in mode {mode:?}, seeds to {seed}", calls.get());
}
