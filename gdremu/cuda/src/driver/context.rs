//! Contexts, and which one is current in the calling thread.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use super::attributes::MULTIPROCESSOR_COUNT;
use super::entry::{in_context, in_idle_context, initialized, with_state};
use super::state::{self, CONTEXT_FLAGS, Context, ContextHandle, STACK, State};
use super::{attributes, buffer, host, work};
use crate::args::{In, Out};
use crate::error::{Error, Result};
use crate::gpus;

/// Contexts behave as since CUDA 3.2: they float between threads.
const API_VERSION: u32 = 3020;

/// Creates a context without making it current; at the handle of an earlier one, if there was one.
///
/// # Errors
/// The error of a GPU kernel.
pub(crate) fn create(
    state: &mut State,
    gpu: usize,
    flags: u32,
    earlier: Option<ContextHandle>,
) -> Result<ContextHandle> {
    state.check()?;
    let context = Context {
        id: state.next_id(),
        gpu,
        flags,
        peers: BTreeSet::new(),
        stop: Arc::default(),
    };
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
    let context = if context == 0 {
        state.current()?.context
    } else {
        context
    };
    state.contexts.get(context).ok_or(Error::INVALID_CONTEXT)
}

/// Ends a context and everything that belongs to it, GPU kernels first.
///
/// # Errors
/// INVALID_CONTEXT.
pub(crate) fn destroy(mut state: MutexGuard<'static, State>, context: ContextHandle) -> Result {
    let ended = state.contexts.remove(context);
    ended
        .ok_or(Error::INVALID_CONTEXT)?
        .stop
        .store(true, Ordering::Relaxed);
    let mut state = work::end(state, context);
    let ended = state.streams.retain(|stream| stream.context != context);
    state.orphans.extend(ended);
    state.events.retain(|event| event.context != context);
    state.modules.retain(|module| module.context != context);
    state
        .functions
        .retain(|function| function.context != context);
    host::free_all_of(&mut state, context);
    buffer::free_all_of(&mut state, context)
}

/// cuCtxCreate in all its versions.
fn create_current(name: &str, handle: Out<ContextHandle>, flags: u32, device: i32) -> i32 {
    with_state(name, |state| {
        handle.check()?;
        let gpu = gpus::by_ordinal(device)?;
        if flags & !CONTEXT_FLAGS != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let context = create(state, gpu, flags, None)?;
        STACK.with(|stack| stack.push(context))?;
        handle.set(context)
    })
}

pub(crate) extern "C" fn cuCtxCreate_v2(
    handle: Out<ContextHandle>,
    flags: u32,
    device: i32,
) -> i32 {
    create_current("cuCtxCreate", handle, flags, device)
}

pub(crate) extern "C" fn cuCtxCreate_v3(
    handle: Out<ContextHandle>,
    _affinities: In<u8>,
    _count: i32,
    flags: u32,
    device: i32,
) -> i32 {
    create_current("cuCtxCreate", handle, flags, device)
}

pub(crate) extern "C" fn cuCtxCreate_v4(
    handle: Out<ContextHandle>,
    _parameters: In<u8>,
    flags: u32,
    device: i32,
) -> i32 {
    create_current("cuCtxCreate", handle, flags, device)
}

pub(crate) extern "C" fn cuCtxDestroy_v2(context: ContextHandle) -> i32 {
    initialized("cuCtxDestroy", || {
        let state = state::lock();
        if state
            .primaries
            .values()
            .any(|primary| primary.context == Some(context))
        {
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
    })
}

pub(crate) extern "C" fn cuCtxPushCurrent_v2(context: ContextHandle) -> i32 {
    with_state("cuCtxPushCurrent", |state| {
        state.check_context(context)?;
        STACK.with(|stack| stack.push(context))
    })
}

pub(crate) extern "C" fn cuCtxPopCurrent_v2(handle: Out<ContextHandle>) -> i32 {
    with_state("cuCtxPopCurrent", |_| {
        let context = STACK
            .with(|stack| stack.pop())
            .ok_or(Error::INVALID_CONTEXT)?;
        handle.set_if_wanted(context);
        Ok(())
    })
}

pub(crate) extern "C" fn cuCtxSetCurrent(context: ContextHandle) -> i32 {
    with_state("cuCtxSetCurrent", |state| {
        if context != 0 {
            state.check_context(context)?;
        }
        STACK.with(|stack| {
            stack.pop();
            if context == 0 {
                Ok(())
            } else {
                stack.push(context)
            }
        })
    })
}

pub(crate) extern "C" fn cuCtxGetCurrent(handle: Out<ContextHandle>) -> i32 {
    with_state("cuCtxGetCurrent", |_| {
        handle.set(STACK.with(|stack| stack.top()).unwrap_or(0))
    })
}

pub(crate) extern "C" fn cuCtxGetDevice(device: Out<i32>) -> i32 {
    in_context("cuCtxGetDevice", |_, current| {
        device.set(current.gpu as i32)
    })
}

pub(crate) extern "C" fn cuCtxGetDevice_v2(device: Out<i32>, context: ContextHandle) -> i32 {
    with_state("cuCtxGetDevice", |state| {
        device.set(live(state, context)?.gpu as i32)
    })
}

pub(crate) extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> i32 {
    in_context("cuCtxGetFlags", |state, current| {
        let context = state
            .contexts
            .get(current.context)
            .ok_or(Error::INVALID_CONTEXT)?;
        flags.set(context.flags)
    })
}

pub(crate) extern "C" fn cuCtxSetFlags(flags: u32) -> i32 {
    in_context("cuCtxSetFlags", |state, current| {
        if flags & !CONTEXT_FLAGS != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let context = state.contexts.get_mut(current.context);
        context.ok_or(Error::INVALID_CONTEXT)?.flags = flags;
        Ok(())
    })
}

/// A CUexecAffinityParam is its type, and the number of multiprocessors that the context may use.
pub(crate) extern "C" fn cuCtxGetExecAffinity(parameter: Out<[u32; 2]>, kind: u32) -> i32 {
    const SM_COUNT: u32 = 0;
    in_context("cuCtxGetExecAffinity", |_, current| {
        parameter.check()?;
        if kind != SM_COUNT {
            return Err(Error::UNSUPPORTED_EXEC_AFFINITY);
        }
        let count = attributes::value(current.gpu, MULTIPROCESSOR_COUNT)?;
        parameter.set([kind, count as u32])
    })
}

pub(crate) extern "C" fn cuCtxGetId(context: ContextHandle, id: Out<u64>) -> i32 {
    with_state("cuCtxGetId", |state| id.set(live(state, context)?.id))
}

pub(crate) extern "C" fn cuCtxGetApiVersion(context: ContextHandle, version: Out<u32>) -> i32 {
    with_state("cuCtxGetApiVersion", |state| {
        live(state, context)?;
        version.set(API_VERSION)
    })
}

pub(crate) extern "C" fn cuCtxSynchronize() -> i32 {
    in_idle_context("cuCtxSynchronize", |_, _| Ok(()))
}

pub(crate) extern "C" fn cuCtxSynchronize_v2(context: ContextHandle) -> i32 {
    if context == 0 {
        return cuCtxSynchronize();
    }
    initialized("cuCtxSynchronize", || {
        let state = state::lock();
        live(&state, context)?;
        let all = work::all_of(&state, context);
        work::wait(state, context, &all).map(drop)
    })
}
