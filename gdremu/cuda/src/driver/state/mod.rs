//! State that outlives a call (contexts, streams, events, modules, allocations). One lock protects all of it. A thread
//! that needs this lock and that of the emulated gdrdrv takes this one first.
//!
//! ```text
//! mod (State, its lock, cuInit)
//!   ├─ objects       contexts and what they own
//!   │    └─ queue    unfinished work of streams
//!   └─ handles       numbers for objects; used by all others
//! ```
#![forbid(unsafe_code)]

mod handles;
mod objects;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::error::{self, Error, Result, ensure};
use gdremu_core::cuda::types::IpcHandle;
use handles::Handles;

pub(crate) use handles::{ContextHandle, EventHandle, FunctionHandle, ModuleHandle, StreamHandle};
pub(crate) use objects::{
    CTX_SYNC_MEMOPS, Capture, Context, Current, DISABLE_TIMING, Event, Function, HostRange, Kind, Module, NON_BLOCKING,
    Primary, Recorded, STACK, Stream, check_flags,
};
pub(crate) use queue::{Point, Queue, QueueId, Queues, Task};

/// A buffer of device memory. Its range is in the GPUs' allocation metadata.
pub(crate) struct Allocation {
    /// The context whose end frees the buffer. Memory from a pool has none.
    pub(crate) context: Option<ContextHandle>,
    pub(crate) pool: Option<usize>,
    /// The handle by which other processes know the buffer (cuIpcGetMemHandle).
    pub(crate) shared: Option<IpcHandle>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: Handles<Context, 0xC1, { Error::INVALID_CONTEXT.0 }>,
    pub(crate) primaries: BTreeMap<usize, Primary>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Buffers of other processes by their addresses in this process, with their handles and how often each is open.
    pub(crate) imports: BTreeMap<u64, (IpcHandle, u32)>,
    pub(crate) host: BTreeMap<usize, HostRange>,
    /// The ids of memory whose attribute SYNC_MEMOPS is set.
    pub(crate) sync_memops: BTreeSet<u64>,
    pub(crate) streams: Handles<Stream, 0xC2, { Error::INVALID_HANDLE.0 }>,
    pub(crate) events: Handles<Event, 0xC3, { Error::INVALID_HANDLE.0 }>,
    pub(crate) modules: Handles<Module, 0xC5, { Error::INVALID_HANDLE.0 }>,
    pub(crate) functions: Handles<Function, 0xC6, { Error::INVALID_HANDLE.0 }>,
    /// The error of queued work, such as a GPU kernel. It is permanent, as in NVIDIA's driver, so only a new process
    /// can use CUDA.
    pub(crate) failed: Option<Error>,
    pub(crate) queues: Queues,
    pub(crate) captures: BTreeMap<StreamHandle, Capture>,
    ids: u64,
}

impl State {
    pub(crate) fn check(&self) -> Result {
        self.failed.map_or(Ok(()), Err)
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn current(&self) -> Result<Current> {
        let context = STACK.with(|stack| stack.top())?;
        self.check()?;
        match self.contexts.get(context) {
            Ok(live) => Ok(Current { context, gpu: live.gpu }),
            Err(_) => Err(Error::CONTEXT_IS_DESTROYED),
        }
    }

    pub(crate) fn check_stream(&self, stream: StreamHandle) -> Result {
        if stream > objects::LAST_DEFAULT {
            self.streams.get(stream)?;
        }
        Ok(())
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

pub(crate) type Locked = MutexGuard<'static, State>;

/// Takes the lock of the state. Callers release it before they access the program's memory or run its CPU or GPU code,
/// because such an access, or the code, may hang.
pub(crate) fn lock() -> Locked {
    error::lock(&STATE)
}

/// The id of the process that called cuInit, or 0 before the first call.
static INITIALIZED: AtomicU32 = AtomicU32::new(0);

/// Does the work of cuInit. A child that was forked after its parent's cuInit cannot use CUDA.
pub(crate) fn initialize() -> Result {
    match INITIALIZED.compare_exchange(0, process::id(), Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(()),
        Err(_) => check_initialized(),
    }
}

/// Fails before cuInit, and in children that were forked after it.
pub(crate) fn check_initialized() -> Result {
    ensure(INITIALIZED.load(Ordering::SeqCst) == process::id(), Error::NOT_INITIALIZED)
}
