//! Events: the time at which their stream passed them.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::state::{self, Event, EventHandle, Recorded, State, StreamHandle};
use super::work;
use crate::error::{Error, Result};

/// Flags of cuEventCreate: blocking, without time, between processes.
pub(super) const FLAGS: u32 = 0x7;

/// An event by its handle.
///
/// # Errors
/// INVALID_HANDLE; the error of its context.
fn find(state: &State, event: EventHandle) -> Result<&Event> {
    let event = state.events.get(event).ok_or(Error::INVALID_HANDLE)?;
    work::check(state, event.context)?;
    Ok(event)
}

pub(super) fn cuEventRecord(event: EventHandle, stream: StreamHandle) -> Result {
    let mut state = state::lock();
    let current = state.current()?;
    state.check_stream(stream)?;
    find(&state, event)?;
    let time = Arc::new(OnceLock::new());
    let point = if work::is_idle(&state, current, stream) {
        time.get_or_init(Instant::now);
        None
    } else {
        let time = Arc::clone(&time);
        let pass = move || {
            time.get_or_init(Instant::now);
            Ok(())
        };
        let point = work::enqueue(state, current, stream, Vec::new(), pass)?;
        state = state::lock();
        Some(point)
    };
    let event = state.events.get_mut(event).ok_or(Error::INVALID_HANDLE)?;
    event.recorded = Some(Recorded { point, time });
    Ok(())
}

pub(super) fn cuEventQuery(state: &mut State, event: EventHandle) -> Result {
    match find(state, event)?.pending(&state.queues) {
        Some(_) => Err(Error::NOT_READY),
        None => Ok(()),
    }
}

pub(super) fn cuEventSynchronize(event: EventHandle) -> Result {
    let state = state::lock();
    let found = find(&state, event)?;
    let (context, pending) = (found.context, found.pending(&state.queues));
    work::wait(state, context, pending.as_slice()).map(drop)
}

/// The milliseconds between two events.
pub(super) fn elapsed(state: &State, start: EventHandle, end: EventHandle) -> Result<f32> {
    let (start, end) = (find(state, start)?.time()?, find(state, end)?.time()?);
    let elapsed = match end.checked_duration_since(start) {
        Some(elapsed) => elapsed.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    Ok(elapsed * 1e3)
}
