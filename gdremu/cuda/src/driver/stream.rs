//! Streams and events. A recorded event holds the time at which its stream passed it.
#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::state::{
    self, Current, DISABLE_TIMING, Event, EventHandle, NON_BLOCKING, Recorded, State, Stream, StreamHandle,
};
use super::work::{self, Turn};
use crate::error::{Error, Result, ensure, valid};

pub(super) fn cuStreamCreate(state: &mut State, current: Current, flags: u32) -> Result<StreamHandle> {
    ensure(flags & !NON_BLOCKING == 0, Error::INVALID_VALUE)?;
    Ok(state.streams.add(Stream { context: current.context, blocking: flags & NON_BLOCKING == 0 }))
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

/// Makes a stream wait for an event. An event that was never recorded counts as passed.
pub(super) fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32) -> Result {
    ensure(flags == 0, Error::INVALID_VALUE)?; // Flags other than 0 are for graphs.
    let mut turn = Turn::of(stream)?;
    turn.check_capture()?;
    match find(&turn.state, event)?.pending(&turn.state.queues) {
        Some(point) => turn.enqueue(Some(point), || Ok(())).map(drop),
        None => Ok(()),
    }
}

/// Runs `function` in the stream's order, with no lock held. As with NVIDIA's driver, the stream's thread runs it and
/// not the caller, because the function may wait for the caller.
pub(super) fn run(stream: StreamHandle, function: Option<impl FnOnce() + Send + 'static>) -> Result {
    let function = valid(function)?;
    Turn::of(stream)?.enqueue(None, || {
        function();
        Ok(())
    })?;
    Ok(())
}

// ---- Events ----

/// The flags of cuEventCreate: blocking synchronization, no timing, use by several processes.
const FLAGS: u32 = 0x7;
const INTERPROCESS: u32 = 0x4;

fn find(state: &State, event: EventHandle) -> Result<&Event> {
    let event = state.events.get(event)?;
    work::check(state, event.context)?;
    Ok(event)
}

pub(super) fn cuEventCreate(state: &mut State, current: Current, flags: u32) -> Result<EventHandle> {
    let timed_between_processes = flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
    ensure(flags & !FLAGS == 0 && !timed_between_processes, Error::INVALID_VALUE)?;
    Ok(state.events.add(Event { context: current.context, flags, recorded: None }))
}

pub(super) fn cuEventRecord(event: EventHandle, stream: StreamHandle) -> Result {
    let mut turn = Turn::of(stream)?;
    let context = find(&turn.state, event)?.context;
    ensure(context == turn.queue.context, Error::INVALID_HANDLE)?;
    turn.check_capture()?;
    let time = Arc::new(OnceLock::new());
    let mut point = None;
    if turn.is_idle() {
        time.get_or_init(Instant::now);
        drop(turn);
    } else {
        let time = Arc::clone(&time);
        point = Some(turn.enqueue(None, move || {
            time.get_or_init(Instant::now);
            Ok(())
        })?);
    }
    state::lock().events.get_mut(event)?.recorded = Some(Recorded { point, time });
    Ok(())
}

pub(super) fn cuEventQuery(state: &mut State, event: EventHandle) -> Result {
    let pending = find(state, event)?.pending(&state.queues);
    ensure(pending.is_none(), Error::NOT_READY)
}

pub(super) fn cuEventSynchronize(event: EventHandle) -> Result {
    let state = state::lock();
    let event = find(&state, event)?;
    let context = event.context;
    let pending = event.pending(&state.queues);
    work::wait(state, context, pending.as_slice()).map(drop)
}

pub(super) fn elapsed(state: &State, start: EventHandle, end: EventHandle) -> Result<f32> {
    let start = find(state, start)?;
    let end = find(state, end)?;
    ensure(start.context == end.context, Error::INVALID_HANDLE)?;
    let start = start.time()?;
    let end = end.time()?;
    let elapsed = match end.checked_duration_since(start) {
        Some(elapsed) => elapsed.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    Ok(elapsed * 1e3)
}
