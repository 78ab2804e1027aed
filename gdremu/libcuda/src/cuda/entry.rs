//! The way into the stand-in: what must hold before a function runs, and what leaves it instead of
//! a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::{Error, Result};
use super::gpus;
use super::state::{self, ContextHandle, State};
use super::work;

/// Runs a function that needs nothing.
pub(super) fn always(name: &str, call: impl FnOnce() -> Result) -> i32 {
    // What a panic leaves half done is a table entry: the program is told that the call failed.
    match catch_unwind(AssertUnwindSafe(|| {
        gpus::fault(name).map_or_else(call, Err)
    })) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Runs a function that needs cuInit in this very process.
pub(super) fn initialised(name: &str, call: impl FnOnce() -> Result) -> i32 {
    always(name, || {
        state::check_initialised()?;
        call()
    })
}

/// Runs a function that needs the state.
pub(super) fn with_state(name: &str, call: impl FnOnce(&mut State) -> Result) -> i32 {
    initialised(name, || call(&mut state::lock()))
}

/// Runs a function that needs a live context to be current, and the state.
pub(super) fn in_context(name: &str, call: impl FnOnce(&mut State, Current) -> Result) -> i32 {
    initialised(name, || {
        let mut state = state::lock();
        let current = current(&state)?;
        call(&mut state, current)
    })
}

/// The same for a function that waits for all work of the context, as those do that free memory.
pub(super) fn in_idle_context(name: &str, call: impl FnOnce(&mut State, Current) -> Result) -> i32 {
    initialised(name, || {
        let state = state::lock();
        let current = current(&state)?;
        let work = work::all_of(&state, current.context);
        call(&mut *work::wait(state, current.context, &work)?, current)
    })
}

/// Runs a function that frees memory, after all work of the context that `owner` finds, or of all
/// contexts. It needs no current one: a thread may free what another one made.
pub(super) fn freeing(
    name: &str,
    owner: impl FnOnce(&State) -> Result<Option<ContextHandle>>,
    call: impl FnOnce(&mut State) -> Result,
) -> i32 {
    initialised(name, || {
        let state = state::lock();
        let work = match owner(&state)? {
            Some(context) => work::all_of(&state, context),
            None => work::all(&state),
        };
        let mut state = work::passed(state, &work);
        state.check()?;
        call(&mut state)
    })
}

/// The calling thread's context.
#[derive(Clone, Copy)]
pub(super) struct Current {
    /// Its handle.
    pub(super) context: ContextHandle,
    /// The GPU it is on.
    pub(super) gpu: usize,
}

/// The calling thread's context.
///
/// # Errors
/// INVALID_CONTEXT: none. CONTEXT_IS_DESTROYED: one that no longer exists. What a kernel did wrong.
pub(super) fn current(state: &State) -> Result<Current> {
    let context = state::STACK
        .with(|stack| stack.top())
        .ok_or(Error::INVALID_CONTEXT)?;
    state.check()?;
    let found = state.contexts.get(context);
    let gpu = found.ok_or(Error::CONTEXT_IS_DESTROYED)?.gpu;
    Ok(Current { context, gpu })
}
