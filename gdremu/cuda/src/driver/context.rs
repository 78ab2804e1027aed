//! Contexts, and which one is current in the calling thread.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::state::{self, CTX_MAP_HOST, Context, ContextHandle, Current, STACK, State};
use super::{buffer, capture, host, work};
use crate::error::{Error, Result, ensure};
use crate::gpus;

/// Contexts behave as since CUDA 3.2, so they float between threads.
pub(super) const API_VERSION: u32 = 3020;

/// Creates a context without making it current; at the handle of an earlier one, if there was one.
pub(super) fn create(
    state: &mut State,
    gpu: usize,
    flags: u32,
    earlier: Option<ContextHandle>,
) -> Result<ContextHandle> {
    state.check()?;
    let context = Context { id: state.next_id(), gpu, flags, peers: BTreeSet::new(), stop: Arc::default() };
    Ok(match earlier {
        None => state.contexts.add(context),
        Some(handle) => {
            state.contexts.put(handle, context);
            handle
        }
    })
}

/// A context by its handle; 0 is the current one.
pub(super) fn live(state: &State, context: ContextHandle) -> Result<&Context> {
    let context = if context == 0 { state.current()?.context } else { context };
    state.contexts.get(context)
}

/// Ends a context and everything that belongs to it, GPU kernels first.
pub(super) fn destroy(mut state: MutexGuard<'static, State>, context: ContextHandle) -> Result {
    state.contexts.remove(context)?.stop.store(true, Ordering::Relaxed);
    let mut state = work::end(state, context);
    let ended = state.streams.retain(|stream| stream.context != context);
    state.orphans.extend(ended);
    state.events.retain(|event| event.context != context);
    state.modules.retain(|module| module.context != context);
    state.functions.retain(|function| function.context != context);
    host::free_all_of(&mut state, context);
    buffer::free_all_of(&mut state, context)
}

pub(super) fn create_current(state: &mut State, flags: u32, device: i32) -> Result<ContextHandle> {
    let gpu = gpus::by_ordinal(device)?;
    state::check_flags(flags)?;
    let context = create(state, gpu, flags, None)?;
    STACK.with(|stack| stack.push(context))?;
    Ok(context)
}

pub(super) fn cuCtxDestroy_v2(context: ContextHandle) -> Result {
    let state = state::lock();
    // Those are released, not destroyed.
    ensure(!state.primaries.values().any(|primary| primary.context == Some(context)), Error::INVALID_CONTEXT)?;
    destroy(state, context)?;
    state::lock().destroyed.insert(context);
    STACK.with(|stack| {
        if stack.top() == Some(context) {
            stack.pop();
        }
    });
    Ok(())
}

pub(super) fn cuCtxSetCurrent(state: &mut State, context: ContextHandle) -> Result {
    if context != 0 {
        state.check_context(context)?;
    }
    STACK.with(|stack| {
        stack.pop();
        if context == 0 { Ok(()) } else { stack.push(context) }
    })
}

pub(super) fn cuCtxSetFlags(state: &mut State, current: Current, flags: u32) -> Result {
    state::check_flags(flags)?;
    let context = state.contexts.get_mut(current.context)?;
    context.flags = flags | context.flags & CTX_MAP_HOST;
    Ok(())
}

pub(super) fn cuCtxSynchronize_v2(context: ContextHandle) -> Result {
    let mut state = state::lock();
    let context = if context == 0 { state.current()?.context } else { context };
    live(&state, context)?;
    capture::check_context(&mut state, context)?;
    let all = work::all_of(&state, context);
    work::wait(state, context, &all).map(drop)
}
