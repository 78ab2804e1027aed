//! Streams.

use super::state::{
    self, ContextHandle, Current, EventHandle, NON_BLOCKING, State, Stream, StreamHandle,
};
use super::{capture, event, work};
use crate::args::Out;
use crate::error::{Error, Result};

/// The highest priority of a stream; the lowest is 0.
const GREATEST_PRIORITY: i32 = -5;

pub(super) fn cuStreamCreate(
    state: &mut State,
    current: Current,
    stream: Out<StreamHandle>,
    flags: u32,
) -> Result {
    cuStreamCreateWithPriority(state, current, stream, flags, 0)
}

pub(super) fn cuStreamCreateWithPriority(
    state: &mut State,
    current: Current,
    stream: Out<StreamHandle>,
    flags: u32,
    priority: i32,
) -> Result {
    stream.check()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    stream.set(state.streams.add(Stream { context: current.context, flags, priority }))
}

pub(super) fn cuStreamDestroy_v2(state: &mut State, stream: StreamHandle) -> Result {
    state.check_not_orphaned(stream);
    capture::forget(state, stream);
    state.streams.remove(stream).map(drop).ok_or(Error::INVALID_HANDLE)
}

pub(super) fn cuStreamSynchronize(stream: StreamHandle) -> Result {
    let mut state = state::lock();
    let current = state.current()?;
    capture::check_stream(&mut state, current, stream)?;
    work::check_stream_and_context(&state, current, stream)?;
    let context = work::context(&state, current, stream);
    let work = work::of_stream(&state, current, stream);
    work::wait(state, context, &work).map(drop)
}

pub(super) fn cuStreamQuery(state: &mut State, current: Current, stream: StreamHandle) -> Result {
    capture::check_stream(state, current, stream)?;
    work::check_stream_and_context(state, current, stream)?;
    if work::of_stream(state, current, stream).is_empty() { Ok(()) } else { Err(Error::NOT_READY) }
}

pub(super) fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32) -> Result {
    let mut state = state::lock();
    let current = state.current()?;
    event::check_flags(flags)?;
    state.check_stream(stream)?;
    capture::check_work(&mut state, current, stream)?;
    let event = state.events.get(event).ok_or(Error::INVALID_HANDLE)?;
    match event.pending(&state.queues) {
        Some(point) => work::enqueue(state, current, stream, vec![point], || Ok(())).map(|_| ()),
        None => Ok(()),
    }
}

pub(super) fn cuStreamGetFlags(
    state: &mut State,
    _: Current,
    stream: StreamHandle,
    flags: Out<u32>,
) -> Result {
    state.check_stream(stream)?;
    flags.set(state.streams.get(stream).map_or(0, |stream| stream.flags))
}

pub(super) fn cuStreamGetPriority(
    state: &mut State,
    _: Current,
    stream: StreamHandle,
    priority: Out<i32>,
) -> Result {
    state.check_stream(stream)?;
    priority.set(state.streams.get(stream).map_or(0, |stream| stream.priority))
}

pub(super) fn cuStreamGetCtx(
    state: &mut State,
    current: Current,
    stream: StreamHandle,
    context: Out<ContextHandle>,
) -> Result {
    state.check_stream(stream)?;
    context.set(state.streams.get(stream).map_or(current.context, |stream| stream.context))
}

/// There are no green contexts.
pub(super) fn cuStreamGetCtx_v2(
    state: &mut State,
    current: Current,
    stream: StreamHandle,
    context: Out<ContextHandle>,
    green_context: Out<usize>,
) -> Result {
    cuStreamGetCtx(state, current, stream, context)?;
    green_context.set_if_wanted(0);
    Ok(())
}

pub(super) fn cuCtxGetStreamPriorityRange(
    _: &mut State,
    _: Current,
    least: Out<i32>,
    greatest: Out<i32>,
) -> Result {
    least.set_if_wanted(0);
    greatest.set_if_wanted(GREATEST_PRIORITY);
    Ok(())
}

/// Runs `function` in the stream's turn, with nothing locked. Always in the stream's thread, as with
/// NVIDIA's driver: it may wait for the caller.
fn run(stream: StreamHandle, function: impl FnOnce() + Send + 'static) -> Result {
    let state = state::lock();
    let current = state.current()?;
    state.check_stream(stream)?;
    let job = || {
        function();
        Ok(())
    };
    work::enqueue(state, current, stream, Vec::new(), job).map(drop)
}

pub(super) fn cuLaunchHostFunc(
    stream: StreamHandle,
    function: Option<extern "C" fn(usize)>,
    data: usize,
) -> Result {
    let function = function.ok_or(Error::INVALID_VALUE)?;
    run(stream, move || function(data))
}

/// How the caller waits makes no difference.
pub(super) fn cuLaunchHostFunc_v2(
    stream: StreamHandle,
    function: Option<extern "C" fn(usize)>,
    data: usize,
    _sync_mode: u32,
) -> Result {
    cuLaunchHostFunc(stream, function, data)
}

pub(super) fn cuStreamAddCallback(
    stream: StreamHandle,
    callback: Option<extern "C" fn(StreamHandle, i32, usize)>,
    data: usize,
    flags: u32,
) -> Result {
    match callback {
        Some(callback) if flags == 0 => run(stream, move || callback(stream, 0, data)),
        _ => Err(Error::INVALID_VALUE),
    }
}
