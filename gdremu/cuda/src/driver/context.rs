//! Contexts, and which one is current in the calling thread. All code that retains a GPU's primary context shares it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::state::{self, Context, ContextHandle, Current, Locked, STACK, State};
use super::{buffer, capture, device, host, work};
use crate::error::{Error, Result, ensure};
use crate::gpus;

/// The API version that all contexts report: that of CUDA 3.2, with which cuCtxCreate_v2 came.
pub(super) const API_VERSION: u32 = 3020;

fn create(state: &mut State, gpu: usize, flags: u32) -> Result<Context> {
    state.check()?;
    Ok(Context { id: state.next_id(), gpu, flags, stop: Arc::default() })
}

pub(super) fn cuCtxCreate_v2(state: &mut State, flags: u32, device: i32) -> Result<ContextHandle> {
    let gpu = gpus::by_ordinal(device)?;
    state::check_flags(flags)?;
    let context = create(state, gpu, flags)?;
    let handle = state.contexts.add(context);
    STACK.with(|stack| stack.push(handle))?;
    Ok(handle)
}

/// Returns a context by its handle. 0 means the current one.
pub(super) fn live(state: &State, context: ContextHandle) -> Result<&Context> {
    let context = if context == 0 { state.current()?.context } else { context };
    state.contexts.get(context)
}

/// Ends a context and everything that belongs to it. Its GPU kernels end first.
fn destroy(mut state: Locked, context: ContextHandle) -> Result {
    state.contexts.remove(context)?.stop.store(true, Ordering::Relaxed);
    let mut state = work::end(state, context);
    state.streams.retain(|stream| stream.context != context);
    state.events.retain(|event| event.context != context);
    state.modules.retain(|module| module.context != context);
    state.functions.retain(|function| function.context != context);
    host::free_all_of(&mut state, context)?;
    buffer::free_all_of(&mut state, context)
}

pub(super) fn cuCtxDestroy_v2(context: ContextHandle) -> Result {
    let state = state::lock();
    // A program can only release primary contexts, not destroy them.
    ensure(!state.primaries.values().any(|primary| primary.context == Some(context)), Error::INVALID_CONTEXT)?;
    destroy(state, context)?;
    STACK.with(|stack| {
        if stack.top() == Ok(context) {
            stack.pop()?;
        }
        Ok(())
    })
}

pub(super) fn cuCtxSetCurrent(state: &mut State, context: ContextHandle) -> Result {
    if context != 0 {
        state.contexts.get(context)?;
    }
    STACK.with(|stack| {
        let _ = stack.pop();
        if context == 0 { Ok(()) } else { stack.push(context) }
    })
}

pub(super) fn cuCtxSetFlags(state: &mut State, current: Current, flags: u32) -> Result {
    state::check_flags(flags)?;
    state.contexts.get_mut(current.context)?.flags = flags;
    Ok(())
}

/// Returns a CUexecAffinityParam: its type, and the number of multiprocessors that the context may use.
pub(super) fn exec_affinity(gpu: usize, kind: u32) -> Result<[u32; 2]> {
    const SM_COUNT: u32 = 0;
    const MULTIPROCESSOR_COUNT: i32 = 16;

    ensure(kind == SM_COUNT, Error::UNSUPPORTED_EXEC_AFFINITY)?;
    Ok([kind, device::value(gpu, MULTIPROCESSOR_COUNT)? as u32])
}

pub(super) fn cuCtxSynchronize_v2(context: ContextHandle) -> Result {
    let mut state = state::lock();
    let context = if context == 0 { state.current()?.context } else { context };
    live(&state, context)?;
    capture::check_context(&mut state, context)?;
    let work = work::all_of(&state, context);
    work::wait(state, context, &work).map(drop)
}

pub(super) fn cuDevicePrimaryCtxRetain(state: &mut State, device: i32) -> Result<ContextHandle> {
    let gpu = gpus::by_ordinal(device)?;
    let mut primary = state.primaries.get(&gpu).copied().unwrap_or_default();
    let context = match primary.context {
        Some(context) => context,
        None => {
            let context = create(state, gpu, primary.flags)?;
            state.contexts.add_as(primary.handle, context)
        }
    };
    primary.context = Some(context);
    primary.handle = Some(context);
    primary.retained += 1;
    state.primaries.insert(gpu, primary);
    Ok(context)
}

/// Sets the flags for all later primary contexts of a GPU, and changes those of the present one, if there is one.
pub(super) fn cuDevicePrimaryCtxSetFlags_v2(state: &mut State, device: i32, flags: u32) -> Result {
    let gpu = gpus::by_ordinal(device)?;
    state::check_flags(flags)?;
    let primary = state.primaries.entry(gpu).or_default();
    primary.flags = flags;
    match primary.context {
        Some(context) => {
            state.contexts.get_mut(context)?.flags = flags;
            Ok(())
        }
        None => Ok(()),
    }
}

pub(super) fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Result {
    let mut state = state::lock();
    let gpu = gpus::by_ordinal(device)?;
    let primary = state.primaries.entry(gpu).or_default();
    ensure(primary.retained > 0, Error::INVALID_CONTEXT)?;
    primary.retained -= 1;
    if primary.retained == 0 { reset_primary(state, gpu) } else { Ok(()) }
}

/// Ends a primary context with all that it owns. Later uses of the context return CONTEXT_IS_DESTROYED. The count of
/// retains does not change, because the program still makes a release for each retain.
pub(super) fn reset_primary(mut state: Locked, gpu: usize) -> Result {
    let primary = state.primaries.entry(gpu).or_default();
    match primary.context.take() {
        Some(context) => destroy(state, context),
        None => Ok(()),
    }
}
