//! Events.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::ContextHandle;
use super::queue::{Point, Queues};
use crate::error::{Error, Result};

/// CUevent.
pub(crate) type EventHandle = usize;

/// Flag of cuEventCreate.
pub(crate) const DISABLE_TIMING: u32 = 0x2;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: ContextHandle,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Recorded>,
}

/// The result of the last cuEventRecord.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Its place in a queue, if the stream had work before it.
    pub(crate) point: Option<Point>,
    /// When the stream passed it.
    pub(crate) time: Arc<OnceLock<Instant>>,
}

impl Event {
    /// Its place in the queue if the stream has not passed it yet.
    pub(crate) fn pending(&self, queues: &Queues) -> Option<Point> {
        let point = self.recorded.as_ref()?.point;
        point.filter(|point| !queues.is_passed(point))
    }

    /// When it was passed.
    ///
    /// # Errors
    /// INVALID_HANDLE: never recorded, or created without timing. NOT_READY: not passed yet.
    pub(crate) fn time(&self) -> Result<Instant> {
        let recorded = self.recorded.as_ref();
        let recorded = recorded.filter(|_| self.flags & DISABLE_TIMING == 0);
        let time = &recorded.ok_or(Error::INVALID_HANDLE)?.time;
        time.get().copied().ok_or(Error::NOT_READY)
    }
}
