//! Streams.

use super::state::{self, Current, EventHandle, NON_BLOCKING, State, Stream, StreamHandle};
use super::{capture, work};
use crate::error::{Error, Result, ensure, valid};

pub(super) fn cuStreamCreate(state: &mut State, current: Current, flags: u32) -> Result<StreamHandle> {
    ensure(flags & !NON_BLOCKING == 0, Error::INVALID_VALUE)?;
    Ok(state.streams.add(Stream { context: current.context, blocking: flags & NON_BLOCKING == 0 }))
}

pub(super) fn cuStreamDestroy_v2(state: &mut State, stream: StreamHandle) -> Result {
    state.check_not_orphaned(stream);
    capture::forget(state, stream);
    state.streams.remove(stream).map(drop)
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
    ensure(work::of_stream(state, current, stream).is_empty(), Error::NOT_READY)
}

pub(super) fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32) -> Result {
    let mut state = state::lock();
    let current = state.current()?;
    ensure(flags == 0, Error::INVALID_VALUE)?; // Others are for graphs.
    state.check_stream(stream)?;
    capture::check_stream(&mut state, current, stream)?;
    let event = state.events.get(event)?;
    match event.pending(&state.queues) {
        Some(point) => work::enqueue(state, current, stream, vec![point], || Ok(())).map(|_| ()),
        None => Ok(()),
    }
}

/// Runs `function` in the stream's turn, with nothing locked. Always in the stream's thread, as with
/// NVIDIA's driver, because it may wait for the caller.
pub(super) fn run(stream: StreamHandle, function: Option<impl FnOnce() + Send + 'static>) -> Result {
    let function = valid(function)?;
    let state = state::lock();
    let current = state.current()?;
    state.check_stream(stream)?;
    work::enqueue(state, current, stream, Vec::new(), || {
        function();
        Ok(())
    })?;
    Ok(())
}
