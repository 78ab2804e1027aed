//! Contexts, and which one is current in the calling thread.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::attributes::MULTIPROCESSOR_COUNT;
use super::state::{self, CTX_MAP_HOST, Context, ContextHandle, Current, STACK, State};
use super::{attributes, buffer, capture, host, work};
use crate::args::{In, Out};
use crate::error::{Error, Result};
use crate::gpus;

/// Contexts behave as since CUDA 3.2: they float between threads.
const API_VERSION: u32 = 3020;

/// Creates a context without making it current; at the handle of an earlier one, if there was one.
///
/// # Errors
/// The error of a GPU kernel.
pub(super) fn create(
    state: &mut State,
    gpu: usize,
    flags: u32,
    earlier: Option<ContextHandle>,
) -> Result<ContextHandle> {
    state.check()?;
    let context =
        Context { id: state.next_id(), gpu, flags, peers: BTreeSet::new(), stop: Arc::default() };
    Ok(match earlier {
        None => state.contexts.add(context),
        Some(handle) => {
            state.contexts.put(handle, context);
            handle
        }
    })
}

/// A context by its handle; 0 is the current one.
fn live(state: &State, context: ContextHandle) -> Result<&Context> {
    let context = if context == 0 { state.current()?.context } else { context };
    state.contexts.get(context).ok_or(Error::INVALID_CONTEXT)
}

/// Ends a context and everything that belongs to it, GPU kernels first.
///
/// # Errors
/// INVALID_CONTEXT.
pub(super) fn destroy(mut state: MutexGuard<'static, State>, context: ContextHandle) -> Result {
    let ended = state.contexts.remove(context);
    ended.ok_or(Error::INVALID_CONTEXT)?.stop.store(true, Ordering::Relaxed);
    let mut state = work::end(state, context);
    let ended = state.streams.retain(|stream| stream.context != context);
    state.orphans.extend(ended);
    state.events.retain(|event| event.context != context);
    state.modules.retain(|module| module.context != context);
    state.functions.retain(|function| function.context != context);
    host::free_all_of(&mut state, context);
    buffer::free_all_of(&mut state, context)
}

pub(super) fn cuCtxCreate_v2(
    state: &mut State,
    handle: Out<ContextHandle>,
    flags: u32,
    device: i32,
) -> Result {
    handle.check()?;
    let gpu = gpus::by_ordinal(device)?;
    state::check_flags(flags)?;
    let context = create(state, gpu, flags, None)?;
    STACK.with(|stack| stack.push(context))?;
    handle.set(context)
}

pub(super) fn cuCtxCreate_v3(
    state: &mut State,
    handle: Out<ContextHandle>,
    affinities: In<u8>,
    count: i32,
    flags: u32,
    device: i32,
) -> Result {
    if !affinities.is_null() && count != 0 {
        return Err(Error::UNSUPPORTED_EXEC_AFFINITY);
    }
    cuCtxCreate_v2(state, handle, flags, device)
}

/// CUctxCreateParams: affinities, their number, and what to share with graphics.
pub(super) fn cuCtxCreate_v4(
    state: &mut State,
    handle: Out<ContextHandle>,
    parameters: In<[usize; 3]>,
    flags: u32,
    device: i32,
) -> Result {
    if !parameters.is_null() && !matches!(parameters.get()?, [0, _, 0]) {
        return Err(Error::NOT_SUPPORTED);
    }
    cuCtxCreate_v2(state, handle, flags, device)
}

pub(super) fn cuCtxDestroy_v2(context: ContextHandle) -> Result {
    let state = state::lock();
    if state.primaries.values().any(|primary| primary.context == Some(context)) {
        return Err(Error::INVALID_CONTEXT); // Released, not destroyed.
    }
    destroy(state, context)?;
    state::lock().destroyed.insert(context);
    STACK.with(|stack| {
        if stack.top() == Some(context) {
            stack.pop();
        }
    });
    Ok(())
}

pub(super) fn cuCtxPushCurrent_v2(state: &mut State, context: ContextHandle) -> Result {
    state.check_context(context)?;
    STACK.with(|stack| stack.push(context))
}

pub(super) fn cuCtxPopCurrent_v2(_: &mut State, handle: Out<ContextHandle>) -> Result {
    let context = STACK.with(|stack| stack.pop()).ok_or(Error::INVALID_CONTEXT)?;
    handle.set_if_wanted(context);
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

pub(super) fn cuCtxGetCurrent(_: &mut State, handle: Out<ContextHandle>) -> Result {
    handle.set(STACK.with(|stack| stack.top()).unwrap_or(0))
}

pub(super) fn cuCtxGetDevice(_: &mut State, current: Current, device: Out<i32>) -> Result {
    device.set(gpus::ordinal(current.gpu))
}

pub(super) fn cuCtxGetDevice_v2(
    state: &mut State,
    device: Out<i32>,
    context: ContextHandle,
) -> Result {
    device.set(gpus::ordinal(live(state, context)?.gpu))
}

pub(super) fn cuCtxGetFlags(state: &mut State, current: Current, flags: Out<u32>) -> Result {
    let context = state.contexts.get(current.context).ok_or(Error::INVALID_CONTEXT)?;
    flags.set(context.flags)
}

pub(super) fn cuCtxSetFlags(state: &mut State, current: Current, flags: u32) -> Result {
    state::check_flags(flags)?;
    let context = state.contexts.get_mut(current.context).ok_or(Error::INVALID_CONTEXT)?;
    context.flags = flags | context.flags & CTX_MAP_HOST;
    Ok(())
}

/// A CUexecAffinityParam is its type, and the number of multiprocessors that the context may use.
pub(super) fn cuCtxGetExecAffinity(
    _: &mut State,
    current: Current,
    parameter: Out<[u32; 2]>,
    kind: u32,
) -> Result {
    const SM_COUNT: u32 = 0;

    parameter.check()?;
    if kind != SM_COUNT {
        return Err(Error::UNSUPPORTED_EXEC_AFFINITY);
    }
    let count = attributes::value(current.gpu, MULTIPROCESSOR_COUNT)?;
    parameter.set([kind, count as u32])
}

pub(super) fn cuCtxGetId(state: &mut State, context: ContextHandle, id: Out<u64>) -> Result {
    id.set(live(state, context)?.id)
}

pub(super) fn cuCtxGetApiVersion(
    state: &mut State,
    context: ContextHandle,
    version: Out<u32>,
) -> Result {
    live(state, context)?;
    version.set(API_VERSION)
}

/// Waits for all work of a context.
fn synchronize(mut state: MutexGuard<'static, State>, context: ContextHandle) -> Result {
    capture::check_context(&mut state, context)?;
    let all = work::all_of(&state, context);
    work::wait(state, context, &all).map(drop)
}

pub(super) fn cuCtxSynchronize() -> Result {
    let state = state::lock();
    let context = state.current()?.context;
    synchronize(state, context)
}

pub(super) fn cuCtxSynchronize_v2(context: ContextHandle) -> Result {
    if context == 0 {
        return cuCtxSynchronize();
    }
    let state = state::lock();
    live(&state, context)?;
    synchronize(state, context)
}

/// There is no profiler.
pub(super) fn cuProfilerStart(_: &mut State, _: Current) -> Result {
    Ok(())
}

pub(super) fn cuProfilerStop(_: &mut State, _: Current) -> Result {
    Ok(())
}
