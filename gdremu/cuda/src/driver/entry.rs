//! Runs the bodies of entry points. Checks their preconditions, and converts errors and panics to CUresults.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::capture;
use super::state::{self, Current, State};
use crate::args::Out;
use crate::error::{Error, Result};
use crate::gpus;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Refuses the calls of this thread, because host functions in streams must not call CUDA.
pub(super) fn forbid_calls() {
    FORBIDDEN.set(true);
}

/// Where the result of an entry point goes.
pub(super) trait Place<T> {
    fn fill(self, make: impl FnOnce() -> Result<T>) -> Result;
}

impl<T: Copy> Place<T> for Out<T> {
    fn fill(self, make: impl FnOnce() -> Result<T>) -> Result {
        Out::fill(self, make)
    }
}

/// The place of entry points without a result.
pub(super) struct Nowhere;

impl Place<()> for Nowhere {
    fn fill(self, make: impl FnOnce() -> Result) -> Result {
        make()
    }
}

fn run(name: &str, call: impl FnOnce() -> Result) -> i32 {
    // A panic leaves at most a table entry half done, and the call returns an error.
    match catch_unwind(AssertUnwindSafe(|| gpus::fault(name).map_or_else(call, Err))) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// The preconditions of all but a few entry points, which are cuInit in this process, and a thread that may call.
fn check(name: &str) -> Result {
    state::check_initialized()?;
    if FORBIDDEN.get() {
        return Err(Error::NOT_PERMITTED);
    }
    capture::check_call(name)
}

/// Runs an entry point that does not require cuInit.
pub(super) fn without_init<T>(name: &str, to: impl Place<T>, call: impl FnOnce() -> Result<T>) -> i32 {
    run(name, || to.fill(call))
}

/// Runs an entry point that requires cuInit.
pub(super) fn initialized<T>(name: &str, to: impl Place<T>, call: impl FnOnce() -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        to.fill(call)
    })
}

/// Runs an entry point that uses the state.
pub(super) fn with_state<T>(name: &str, to: impl Place<T>, call: impl FnOnce(&mut State) -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        to.fill(|| call(&mut state::lock()))
    })
}

/// Runs an entry point that requires a live current context.
pub(super) fn in_context<T>(name: &str, to: impl Place<T>, call: impl FnOnce(&mut State, Current) -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        let mut state = state::lock();
        let current = state.current()?;
        to.fill(|| call(&mut state, current))
    })
}
