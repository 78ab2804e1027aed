//! Streams that capture.

use std::thread::ThreadId;

/// A stream that captures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    /// CUstreamCaptureMode.
    pub(crate) mode: u32,
    /// The thread that began it.
    pub(crate) thread: ThreadId,
    /// No call has endangered it.
    pub(crate) valid: bool,
}
