//! Objects that contexts own (streams, events, captures, modules, pools, host memory).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

use super::handles::{ContextHandle, FunctionHandle, StreamHandle};
use super::queue::{Point, Queues};
use crate::error::{Error, Result};
use crate::ptx::Kernel;

/// The default stream with the highest number.
pub(crate) const LAST_DEFAULT: StreamHandle = 2;

/// Flag of cuStreamCreate.
pub(crate) const NON_BLOCKING: u32 = 1;

pub(crate) struct Stream {
    pub(crate) context: ContextHandle,
    /// It and the default stream wait for each other.
    pub(crate) blocking: bool,
}

/// Flag of cuEventCreate.
pub(crate) const DISABLE_TIMING: u32 = 0x2;

pub(crate) struct Event {
    pub(crate) context: ContextHandle,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Recorded>,
}

/// The result of the last cuEventRecord.
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

    pub(crate) fn time(&self) -> Result<Instant> {
        let recorded = self.recorded.as_ref();
        let recorded = recorded.filter(|_| self.flags & DISABLE_TIMING == 0);
        let time = &recorded.ok_or(Error::INVALID_HANDLE)?.time;
        time.get().copied().ok_or(Error::NOT_READY)
    }
}

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

pub(crate) struct Module {
    pub(crate) context: ContextHandle,
    /// By name.
    pub(crate) functions: BTreeMap<String, FunctionHandle>,
    /// Address and size by name.
    pub(crate) variables: BTreeMap<String, (u64, usize)>,
    /// The buffer that they are in, if there are any.
    pub(crate) memory: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: ContextHandle,
    pub(crate) name: String,
    /// Or why it cannot run.
    pub(crate) kernel: std::result::Result<Arc<Kernel>, String>,
    /// The address of its module's variables.
    pub(crate) variables: u64,
    /// The compute capability that its PTX is for, times 10.
    pub(crate) target: u32,
}

pub(crate) struct Pool {
    pub(crate) gpu: usize,
    /// Its memory can be pinned.
    pub(crate) rdma: bool,
}

/// A range of host memory that is known to CUDA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRange {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) context: ContextHandle,
    pub(crate) gpu: usize,
    /// Different for every range of this process, as for device memory.
    pub(crate) id: u64,
}

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// cuMemAllocHost, cuMemHostAlloc.
    Allocated,
    /// cuMemHostRegister: the program's own.
    Registered,
    /// cuMemAllocManaged.
    Managed,
}
