//! Contexts, each thread's stack of them, and what they own (streams, events, captures, modules, host memory).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Instant;

use gdremu_ptx::Kernel;

use super::handles::{ContextHandle, FunctionHandle, StreamHandle};
use super::queue::{Point, Queues};
use crate::error::{Error, Result, ensure};

/// All flags of a context.
const FLAGS: u32 = 0xff;
/// The flags of a context that choose how threads wait for the GPU. A context can have one of them at most.
const SCHEDULING: u32 = 0x7;

/// CU_CTX_SYNC_MEMOPS: copies and fills that are not asynchronous return only when they are done.
pub(crate) const CTX_SYNC_MEMOPS: u32 = 0x80;

pub(crate) fn check_flags(flags: u32) -> Result {
    let valid = flags & !FLAGS == 0 && (flags & SCHEDULING).count_ones() <= 1;
    ensure(valid, Error::INVALID_VALUE)
}

pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) gpu: usize,
    pub(crate) flags: u32,
    pub(crate) stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<ContextHandle>,
    /// The handle of the GPU's primary context, which stays the same after a reset, as with NVIDIA's driver.
    pub(crate) handle: Option<ContextHandle>,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) context: ContextHandle,
    pub(crate) gpu: usize,
}

thread_local! {
    /// The thread's stack of contexts. It has no destructor, because threads may end after a dlclose of this library.
    pub(crate) static STACK: Stack = const { Stack::new() };
}

const DEPTH: usize = 64;

pub(crate) struct Stack {
    contexts: [Cell<ContextHandle>; DEPTH],
    len: Cell<usize>,
}

impl Stack {
    const fn new() -> Self {
        Stack { contexts: [const { Cell::new(0) }; DEPTH], len: Cell::new(0) }
    }

    pub(crate) fn top(&self) -> Result<ContextHandle> {
        let top = self.len.get().checked_sub(1).ok_or(Error::INVALID_CONTEXT)?;
        Ok(self.contexts[top].get())
    }

    pub(crate) fn push(&self, context: ContextHandle) -> Result {
        let len = self.len.get();
        ensure(len < DEPTH, Error::OUT_OF_MEMORY)?;
        self.contexts[len].set(context);
        self.len.set(len + 1);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Result<ContextHandle> {
        let top = self.top()?;
        self.len.set(self.len.get() - 1);
        Ok(top)
    }
}

/// CU_STREAM_PER_THREAD, the default stream with the highest number.
pub(crate) const LAST_DEFAULT: StreamHandle = 2;

pub(crate) const NON_BLOCKING: u32 = 1;

pub(crate) struct Stream {
    pub(crate) context: ContextHandle,
    /// True if this stream and the default stream wait for each other.
    pub(crate) blocking: bool,
}

pub(crate) const DISABLE_TIMING: u32 = 0x2;

pub(crate) struct Event {
    pub(crate) context: ContextHandle,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Recorded>,
}

/// The result of the last cuEventRecord.
pub(crate) struct Recorded {
    /// The event's place in a queue, if the stream had work before it.
    pub(crate) point: Option<Point>,
    /// The time at which the stream passed the event.
    pub(crate) time: Arc<OnceLock<Instant>>,
}

impl Event {
    /// Returns the event's place in the queue if the stream has not passed the event yet.
    pub(crate) fn pending(&self, queues: &Queues) -> Option<Point> {
        let point = self.recorded.as_ref()?.point?;
        if queues.is_passed(&point) { None } else { Some(point) }
    }

    pub(crate) fn time(&self) -> Result<Instant> {
        ensure(self.flags & DISABLE_TIMING == 0, Error::INVALID_HANDLE)?;
        let recorded = self.recorded.as_ref().ok_or(Error::INVALID_HANDLE)?;
        recorded.time.get().copied().ok_or(Error::NOT_READY)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    pub(crate) mode: u32,
    /// The thread that began the capture.
    pub(crate) thread: ThreadId,
    /// False after a call that CUDA does not permit during the capture.
    pub(crate) valid: bool,
}

pub(crate) struct Module {
    pub(crate) context: ContextHandle,
    pub(crate) functions: BTreeMap<String, FunctionHandle>,
    /// The address and size of each variable, by its name.
    pub(crate) variables: BTreeMap<String, (u64, usize)>,
    /// The buffer with the variables, or 0 if there are none.
    pub(crate) memory: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: ContextHandle,
    pub(crate) name: String,
    /// The GPU kernel, or the reason why it cannot run.
    pub(crate) kernel: std::result::Result<Arc<Kernel>, String>,
    /// The address of the variables of the function's module.
    pub(crate) variables: u64,
    /// The compute capability that the function's PTX is for, times 10.
    pub(crate) target: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRange {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) context: ContextHandle,
    pub(crate) gpu: usize,
    /// The BUFFER_ID of the range. No other memory of this process has it.
    pub(crate) id: u64,
}

/// The kind of host memory, by the CUDA function that made or registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of cuMemAllocHost or cuMemHostAlloc.
    Allocated,
    /// The program's own memory, which cuMemHostRegister registered.
    Registered,
    /// Memory of cuMemAllocManaged.
    Managed,
}
