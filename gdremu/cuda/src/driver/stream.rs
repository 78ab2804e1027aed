//! Streams.

use super::capture;
use super::entry::{in_context, initialized, with_state};
use super::state::{self, ContextHandle, EventHandle, NON_BLOCKING, Stream, StreamHandle};
use super::work;
use crate::args::Out;
use crate::error::Error;

/// The highest priority of a stream; the lowest is 0.
const GREATEST_PRIORITY: i32 = -5;

pub(crate) extern "C" fn cuStreamCreate(stream: Out<StreamHandle>, flags: u32) -> i32 {
    cuStreamCreateWithPriority(stream, flags, 0)
}

pub(crate) extern "C" fn cuStreamCreateWithPriority(
    stream: Out<StreamHandle>,
    flags: u32,
    priority: i32,
) -> i32 {
    in_context("cuStreamCreateWithPriority", |state, current| {
        stream.check()?;
        if flags & !NON_BLOCKING != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let priority = priority.clamp(GREATEST_PRIORITY, 0);
        stream.set(state.streams.add(Stream {
            context: current.context,
            flags,
            priority,
        }))
    })
}

pub(crate) extern "C" fn cuStreamDestroy_v2(stream: StreamHandle) -> i32 {
    with_state("cuStreamDestroy", |state| {
        state.check_not_orphaned(stream);
        capture::forget(state, stream);
        state
            .streams
            .remove(stream)
            .map(drop)
            .ok_or(Error::INVALID_HANDLE)
    })
}

pub(crate) extern "C" fn cuStreamSynchronize(stream: StreamHandle) -> i32 {
    initialized("cuStreamSynchronize", || {
        let state = state::lock();
        let current = state.current()?;
        work::check_stream_and_context(&state, current, stream)?;
        let context = work::context(&state, current, stream);
        let work = work::of_stream(&state, current, stream);
        work::wait(state, context, &work).map(drop)
    })
}

pub(crate) extern "C" fn cuStreamQuery(stream: StreamHandle) -> i32 {
    in_context("cuStreamQuery", |state, current| {
        capture::check_stream(state, stream)?;
        work::check_stream_and_context(state, current, stream)?;
        if work::of_stream(state, current, stream).is_empty() {
            Ok(())
        } else {
            Err(Error::NOT_READY)
        }
    })
}

pub(crate) extern "C" fn cuStreamWaitEvent(
    stream: StreamHandle,
    event: EventHandle,
    _flags: u32,
) -> i32 {
    initialized("cuStreamWaitEvent", || {
        let state = state::lock();
        let current = state.current()?;
        state.check_stream(stream)?;
        let event = state.events.get(event).ok_or(Error::INVALID_HANDLE)?;
        match event.pending(&state.queues) {
            Some(point) => {
                work::enqueue(state, current, stream, vec![point], || Ok(())).map(|_| ())
            }
            None => Ok(()),
        }
    })
}

pub(crate) extern "C" fn cuStreamGetFlags(stream: StreamHandle, flags: Out<u32>) -> i32 {
    in_context("cuStreamGetFlags", |state, _| {
        state.check_stream(stream)?;
        flags.set(state.streams.get(stream).map_or(0, |stream| stream.flags))
    })
}

pub(crate) extern "C" fn cuStreamGetPriority(stream: StreamHandle, priority: Out<i32>) -> i32 {
    in_context("cuStreamGetPriority", |state, _| {
        state.check_stream(stream)?;
        priority.set(
            state
                .streams
                .get(stream)
                .map_or(0, |stream| stream.priority),
        )
    })
}

pub(crate) extern "C" fn cuStreamGetCtx(stream: StreamHandle, context: Out<ContextHandle>) -> i32 {
    in_context("cuStreamGetCtx", |state, current| {
        state.check_stream(stream)?;
        context.set(
            state
                .streams
                .get(stream)
                .map_or(current.context, |stream| stream.context),
        )
    })
}

/// There are no green contexts.
pub(crate) extern "C" fn cuStreamGetCtx_v2(
    stream: StreamHandle,
    context: Out<ContextHandle>,
    green_context: Out<usize>,
) -> i32 {
    let result = cuStreamGetCtx(stream, context);
    if result == 0 {
        green_context.set_if_wanted(0);
    }
    result
}

pub(crate) extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> i32 {
    in_context("cuCtxGetStreamPriorityRange", |_, _| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(GREATEST_PRIORITY);
        Ok(())
    })
}

/// Runs `function` in the stream's turn, with nothing locked. Always in the stream's thread, as with
/// NVIDIA's driver: it may wait for the caller.
fn run(name: &str, stream: StreamHandle, function: impl FnOnce() + Send + 'static) -> i32 {
    initialized(name, || {
        let state = state::lock();
        let current = state.current()?;
        state.check_stream(stream)?;
        let job = || {
            function();
            Ok(())
        };
        work::enqueue(state, current, stream, Vec::new(), job).map(drop)
    })
}

pub(crate) extern "C" fn cuLaunchHostFunc(
    stream: StreamHandle,
    function: Option<extern "C" fn(usize)>,
    data: usize,
) -> i32 {
    match function {
        Some(function) => run("cuLaunchHostFunc", stream, move || function(data)),
        None => Error::INVALID_VALUE.0,
    }
}

/// How the caller waits makes no difference.
pub(crate) extern "C" fn cuLaunchHostFunc_v2(
    stream: StreamHandle,
    function: Option<extern "C" fn(usize)>,
    data: usize,
    _sync_mode: u32,
) -> i32 {
    cuLaunchHostFunc(stream, function, data)
}

pub(crate) extern "C" fn cuStreamAddCallback(
    stream: StreamHandle,
    callback: Option<extern "C" fn(StreamHandle, i32, usize)>,
    data: usize,
    flags: u32,
) -> i32 {
    match callback {
        Some(callback) if flags == 0 => run("cuStreamAddCallback", stream, move || {
            callback(stream, 0, data)
        }),
        _ => Error::INVALID_VALUE.0,
    }
}
