//! Events: the time at which the calling thread passed them.

use std::time::Instant;

use super::args::Out;
use super::entry::{in_context, with_state};
use super::error::Error;
use super::state::ContextHandle;
use super::stream::{self, StreamHandle};

/// CUevent.
pub(super) type EventHandle = usize;

/// Flags of cuEventCreate: blocking, without time, between processes.
const FLAGS: u32 = 0x7;
const DISABLE_TIMING: u32 = 0x2;

/// An event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) context: ContextHandle,
    flags: u32,
    recorded: Option<Instant>,
}

impl Event {
    /// When it was recorded.
    ///
    /// # Errors
    /// INVALID_HANDLE: never, or made without timing.
    fn time(&self) -> super::error::Result<Instant> {
        self.recorded
            .filter(|_| self.flags & DISABLE_TIMING == 0)
            .ok_or(Error::INVALID_HANDLE)
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventCreate(event: Out<EventHandle>, flags: u32) -> i32 {
    in_context("cuEventCreate", |state, current| {
        event.check()?;
        if flags & !FLAGS != 0 {
            return Err(Error::INVALID_VALUE);
        }
        event.set(state.events.add(Event {
            context: current.context,
            flags,
            recorded: None,
        }))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventDestroy_v2(event: EventHandle) -> i32 {
    with_state("cuEventDestroy", |state| {
        state
            .events
            .remove(event)
            .map(drop)
            .ok_or(Error::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecord(event: EventHandle, stream: StreamHandle) -> i32 {
    in_context("cuEventRecord", |state, _| {
        stream::check(state, stream)?;
        let event = state.events.get_mut(event).ok_or(Error::INVALID_HANDLE)?;
        event.recorded = Some(Instant::now());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecordWithFlags(
    event: EventHandle,
    stream: StreamHandle,
    flags: u32,
) -> i32 {
    if flags > 1 {
        return Error::INVALID_VALUE.0;
    }
    cuEventRecord(event, stream)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventQuery(event: EventHandle) -> i32 {
    with_state("cuEventQuery", |state| {
        state
            .events
            .get(event)
            .map(|_| ())
            .ok_or(Error::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventSynchronize(event: EventHandle) -> i32 {
    cuEventQuery(event)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventElapsedTime(
    milliseconds: Out<f32>,
    start: EventHandle,
    end: EventHandle,
) -> i32 {
    with_state("cuEventElapsedTime", |state| {
        let start = state
            .events
            .get(start)
            .ok_or(Error::INVALID_HANDLE)?
            .time()?;
        let end = state.events.get(end).ok_or(Error::INVALID_HANDLE)?.time()?;
        let elapsed = match end.checked_duration_since(start) {
            Some(elapsed) => elapsed.as_secs_f32(),
            None => -start.duration_since(end).as_secs_f32(),
        };
        milliseconds.set(elapsed * 1e3)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventElapsedTime_v2(
    milliseconds: Out<f32>,
    start: EventHandle,
    end: EventHandle,
) -> i32 {
    cuEventElapsedTime(milliseconds, start, end)
}
