//! Runs the bodies of entry points, checks their preconditions, and converts errors and panics to CUresults.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::capture;
use super::state::{self, Current, State};
use crate::args::Out;
use crate::error::{Error, Result, ensure};
use crate::gpus;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Makes later CUDA calls of this thread fail. The thread runs host functions of streams, which must not call CUDA.
pub(super) fn forbid_calls() {
    FORBIDDEN.set(true);
}

fn run(name: &str, call: impl FnOnce() -> Result) -> i32 {
    // AssertUnwindSafe: a panic leaves at most one entry of a table half changed, and the CUDA call returns an error.
    let result = catch_unwind(AssertUnwindSafe(|| {
        gpus::check_fault(name)?;
        call()
    }));
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Checks the preconditions of all but a few entry points: cuInit was called in this process, this thread may call
/// CUDA, and no stream capture forbids the call.
fn check(name: &str) -> Result {
    state::check_initialized()?;
    ensure(!FORBIDDEN.get(), Error::NOT_PERMITTED)?;
    capture::check_call(name)
}

pub(super) fn without_init<T: Copy>(name: &str, to: Out<T>, call: impl FnOnce() -> Result<T>) -> i32 {
    run(name, || to.fill(call))
}

pub(super) fn initialized<T: Copy>(name: &str, to: Out<T>, call: impl FnOnce() -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        to.fill(call)
    })
}

pub(super) fn with_state<T: Copy>(name: &str, to: Out<T>, call: impl FnOnce(&mut State) -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        to.fill(|| call(&mut state::lock()))
    })
}

pub(super) fn in_context<T: Copy>(name: &str, to: Out<T>, call: impl FnOnce(&mut State, Current) -> Result<T>) -> i32 {
    run(name, || {
        check(name)?;
        let mut state = state::lock();
        let current = state.current()?;
        to.fill(|| call(&mut state, current))
    })
}
