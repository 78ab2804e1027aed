//! Events: the time at which their stream passed them.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::args::Out;
use super::entry::{current, in_context, initialised, with_state};
use super::error::{Error, Result};
use super::state::{self, ContextHandle, State};
use super::stream::{self, StreamHandle};
use super::work::{self, Point};

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
    recorded: Option<Recorded>,
}

/// What the last cuEventRecord left.
#[derive(Debug)]
struct Recorded {
    /// Its place in a queue, if the stream had work before it.
    point: Option<Point>,
    /// When the stream passed it.
    time: Arc<OnceLock<Instant>>,
}

impl Event {
    /// The place that its stream has not passed yet.
    pub(super) fn pending(&self, state: &State) -> Option<Point> {
        let point = self.recorded.as_ref()?.point;
        point.filter(|point| !work::is_passed(state, point))
    }

    /// When it was passed.
    ///
    /// # Errors
    /// INVALID_HANDLE: never recorded, or made without timing. NOT_READY: not yet.
    fn time(&self) -> Result<Instant> {
        let recorded = self.recorded.as_ref();
        let recorded = recorded.filter(|_| self.flags & DISABLE_TIMING == 0);
        let time = &recorded.ok_or(Error::INVALID_HANDLE)?.time;
        time.get().copied().ok_or(Error::NOT_READY)
    }
}

/// An event by its handle.
///
/// # Errors
/// INVALID_HANDLE; what its context has failed with.
fn find(state: &State, event: EventHandle) -> Result<&Event> {
    let event = state.events.get(event).ok_or(Error::INVALID_HANDLE)?;
    work::check(state, event.context)?;
    Ok(event)
}

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

pub(super) extern "C" fn cuEventDestroy_v2(event: EventHandle) -> i32 {
    with_state("cuEventDestroy", |state| {
        state
            .events
            .remove(event)
            .map(drop)
            .ok_or(Error::INVALID_HANDLE)
    })
}

pub(super) extern "C" fn cuEventRecord(event: EventHandle, stream: StreamHandle) -> i32 {
    initialised("cuEventRecord", || {
        let mut state = state::lock();
        let current = current(&state)?;
        stream::check(&state, stream)?;
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
    })
}

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

pub(super) extern "C" fn cuEventQuery(event: EventHandle) -> i32 {
    with_state("cuEventQuery", |state| {
        match find(state, event)?.pending(state) {
            Some(_) => Err(Error::NOT_READY),
            None => Ok(()),
        }
    })
}

pub(super) extern "C" fn cuEventSynchronize(event: EventHandle) -> i32 {
    initialised("cuEventSynchronize", || {
        let state = state::lock();
        let found = find(&state, event)?;
        let (context, pending) = (found.context, found.pending(&state));
        work::wait(state, context, pending.as_slice()).map(drop)
    })
}

pub(super) extern "C" fn cuEventElapsedTime(
    milliseconds: Out<f32>,
    start: EventHandle,
    end: EventHandle,
) -> i32 {
    with_state("cuEventElapsedTime", |state| {
        let (start, end) = (find(state, start)?.time()?, find(state, end)?.time()?);
        let elapsed = match end.checked_duration_since(start) {
            Some(elapsed) => elapsed.as_secs_f32(),
            None => -start.duration_since(end).as_secs_f32(),
        };
        milliseconds.set(elapsed * 1e3)
    })
}

pub(super) extern "C" fn cuEventElapsedTime_v2(
    milliseconds: Out<f32>,
    start: EventHandle,
    end: EventHandle,
) -> i32 {
    cuEventElapsedTime(milliseconds, start, end)
}
