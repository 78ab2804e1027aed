//! Runs the bodies of entry points. Checks their preconditions, and converts errors and panics to CUresults.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::capture;
use super::state::{self, Current, State};
use crate::error::{Error, Result};
use crate::gpus;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Refuses the calls of this thread, because host functions in streams must not call CUDA.
pub(super) fn forbid_calls() {
    FORBIDDEN.set(true);
}

/// Runs a CUDA entry point that does not require cuInit.
pub(super) fn without_init(name: &str, call: impl FnOnce() -> Result) -> i32 {
    // A panic leaves at most a table entry half done, and the call returns an error.
    match catch_unwind(AssertUnwindSafe(|| gpus::fault(name).map_or_else(call, Err))) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Runs an entry point that requires cuInit in this process.
pub(super) fn initialized(name: &str, call: impl FnOnce() -> Result) -> i32 {
    without_init(name, || {
        state::check_initialized()?;
        if FORBIDDEN.get() {
            return Err(Error::NOT_PERMITTED);
        }
        capture::check_call(name)?;
        call()
    })
}

/// Runs an entry point that uses the state.
pub(super) fn with_state(name: &str, call: impl FnOnce(&mut State) -> Result) -> i32 {
    initialized(name, || call(&mut state::lock()))
}

/// Runs an entry point that requires a live current context.
pub(super) fn in_context(name: &str, call: impl FnOnce(&mut State, Current) -> Result) -> i32 {
    initialized(name, || {
        let mut state = state::lock();
        let current = state.current()?;
        call(&mut state, current)
    })
}
