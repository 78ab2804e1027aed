//! Streams.

use super::ContextHandle;

/// CUstream. 0, 1 and 2 are the default streams, which are the same here.
pub(crate) type StreamHandle = usize;

/// The default stream with the highest number.
pub(crate) const LAST_DEFAULT: StreamHandle = 2;

/// Flag of cuStreamCreate.
pub(crate) const NON_BLOCKING: u32 = 1;

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: ContextHandle,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

impl Stream {
    /// Whether it and the default stream wait for each other.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}
