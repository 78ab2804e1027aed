//! Streams.

use super::capture;
use super::state::{Current, EventHandle, NON_BLOCKING, State, Stream, StreamHandle};
use super::work::{self, Turn};
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
    let mut turn = Turn::of(stream)?;
    turn.check_capture()?;
    let work = turn.own_work();
    work::wait(turn.state, turn.queue.context, &work).map(drop)
}

pub(super) fn cuStreamQuery(stream: StreamHandle) -> Result {
    let mut turn = Turn::of(stream)?;
    turn.check_capture()?;
    ensure(turn.own_work().is_empty(), Error::NOT_READY)
}

pub(super) fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32) -> Result {
    ensure(flags == 0, Error::INVALID_VALUE)?; // Others are for graphs.
    let mut turn = Turn::of(stream)?;
    turn.check_capture()?;
    let event = turn.state.events.get(event)?;
    match event.pending(&turn.state.queues) {
        Some(point) => turn.enqueue(vec![point], || Ok(())).map(drop),
        None => Ok(()),
    }
}

/// Runs `function` in the stream's turn, with nothing locked. Always in the stream's thread, as with
/// NVIDIA's driver, because it may wait for the caller.
pub(super) fn run(stream: StreamHandle, function: Option<impl FnOnce() + Send + 'static>) -> Result {
    let function = valid(function)?;
    Turn::of(stream)?.enqueue(Vec::new(), || {
        function();
        Ok(())
    })?;
    Ok(())
}
