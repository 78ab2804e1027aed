//! What outlives a call: contexts, streams, events, modules, allocations. One lock protects all of it.
//! It is taken before the lock of the emulated driver.
//!
//! ```text
//! mod (State, its lock, cuInit)
//!   └─ context stream event pool module host_range   one kind of object each
//!        └─ queue     unfinished work of streams
//!           handles   numbers for objects
//! ```
#![forbid(unsafe_code)]

mod context;
mod event;
mod handles;
mod host_range;
mod module;
mod pool;
mod queue;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::capture::Capture;
use super::error::{Error, Result};
use super::types::IpcHandle;
use handles::Handles;

pub(super) use context::{CONTEXT_FLAGS, Context, ContextHandle, Current, Primary, STACK};
pub(super) use event::{Event, EventHandle, Recorded};
pub(super) use host_range::{HostRange, Kind};
pub(super) use module::{Function, FunctionHandle, Module, ModuleHandle};
pub(super) use pool::{Pool, PoolHandle};
pub(super) use queue::{Point, QueueId, Queues, Task};
pub(super) use stream::{NON_BLOCKING, Stream, StreamHandle};

/// A buffer of device memory; its range is in the GPUs' allocation metadata.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The context that frees it at its end; none for memory from a pool.
    pub(super) context: Option<ContextHandle>,
    pub(super) pool: Option<usize>,
    pub(super) sync_memops: bool,
}

/// Everything that outlives a call.
#[derive(Debug)]
pub(super) struct State {
    pub(super) contexts: Handles<Context, 0xC1>,
    /// Contexts that were destroyed: not primary ones.
    pub(super) destroyed: BTreeSet<ContextHandle>,
    pub(super) primaries: BTreeMap<usize, Primary>,
    /// By device address.
    pub(super) allocations: BTreeMap<u64, Allocation>,
    /// Buffers of other processes by their addresses here: the handle, and how often it is open.
    pub(super) imports: BTreeMap<u64, (IpcHandle, u32)>,
    /// By address.
    pub(super) host: BTreeMap<usize, HostRange>,
    pub(super) streams: Handles<Stream, 0xC2>,
    /// Streams that ended with their contexts.
    pub(super) orphans: BTreeSet<StreamHandle>,
    pub(super) events: Handles<Event, 0xC3>,
    pub(super) modules: Handles<Module, 0xC5>,
    pub(super) functions: Handles<Function, 0xC6>,
    /// The error of a GPU kernel. Permanent, as with NVIDIA's driver: only a new process can use CUDA.
    pub(super) failed: Option<Error>,
    pub(super) queues: Queues,
    pub(super) captures: BTreeMap<StreamHandle, Capture>,
    pub(super) graphs: Handles<(), 0xC7>,
    pub(super) pools: Handles<Pool, 0xC4>,
    /// The default and the current pool of each GPU.
    pub(super) default_pools: BTreeMap<usize, usize>,
    pub(super) current_pools: BTreeMap<usize, usize>,
    ids: u64,
}

impl State {
    /// # Errors
    /// The error of a GPU kernel.
    pub(super) fn check(&self) -> Result {
        self.failed.map_or(Ok(()), Err)
    }

    /// A number that was never returned before.
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// The calling thread's context.
    ///
    /// # Errors
    /// INVALID_CONTEXT: none. CONTEXT_IS_DESTROYED: one that no longer exists. The error of a GPU kernel.
    pub(super) fn current(&self) -> Result<Current> {
        let context = STACK
            .with(|stack| stack.top())
            .ok_or(Error::INVALID_CONTEXT)?;
        self.check()?;
        let found = self.contexts.get(context);
        let gpu = found.ok_or(Error::CONTEXT_IS_DESTROYED)?.gpu;
        Ok(Current { context, gpu })
    }

    /// Ends the program if the stream ended with its context: NVIDIA's driver does not check that, and crashes or
    /// corrupts the heap.
    pub(super) fn check_not_orphaned(&self, stream: StreamHandle) {
        if self.orphans.contains(&stream) {
            die(format_args!(
                "stream {stream:#x} is used after the end of its context"
            ));
        }
    }

    /// Whether the context can become current. Ends the program if it was destroyed: NVIDIA's driver makes it
    /// current, and crashes later.
    ///
    /// # Errors
    /// INVALID_CONTEXT if the handle is not a context's.
    pub(super) fn check_context(&self, context: ContextHandle) -> Result {
        if self.destroyed.contains(&context) {
            die(format_args!(
                "context {context:#x} becomes current after it was destroyed"
            ));
        }
        let live = self.contexts.get(context);
        live.map(drop).ok_or(Error::INVALID_CONTEXT)
    }

    /// Ends the program if the stream ended with its context.
    ///
    /// # Errors
    /// INVALID_HANDLE if the handle is not a stream's.
    pub(super) fn check_stream(&self, stream: StreamHandle) -> Result {
        self.check_not_orphaned(stream);
        if stream <= stream::LAST_DEFAULT || self.streams.get(stream).is_some() {
            Ok(())
        } else {
            Err(Error::INVALID_HANDLE)
        }
    }
}

/// Ends the program, whose next steps would depend on freed memory on a GPU.
fn die(what: std::fmt::Arguments<'_>) -> ! {
    eprintln!("gdremu: {what}, which crashes on a GPU");
    process::abort()
}

static STATE: Mutex<State> = Mutex::new(State {
    contexts: Handles::new(),
    destroyed: BTreeSet::new(),
    primaries: BTreeMap::new(),
    allocations: BTreeMap::new(),
    imports: BTreeMap::new(),
    host: BTreeMap::new(),
    streams: Handles::new(),
    orphans: BTreeSet::new(),
    events: Handles::new(),
    modules: Handles::new(),
    functions: Handles::new(),
    failed: None,
    queues: Queues::new(),
    captures: BTreeMap::new(),
    graphs: Handles::new(),
    pools: Handles::new(),
    default_pools: BTreeMap::new(),
    current_pools: BTreeMap::new(),
    ids: 0,
});

/// Takes the lock. Release it before accessing the program's memory or running its functions or GPU
/// kernels: they may never return.
pub(super) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that called cuInit, or 0.
static INITIALIZED: AtomicU32 = AtomicU32::new(0);

/// cuInit. A child forked after its parent's cuInit cannot have CUDA.
///
/// # Errors
/// NOT_INITIALIZED in such a child.
pub(super) fn initialize() -> Result {
    match INITIALIZED.compare_exchange(0, process::id(), Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(()),
        Err(_) => check_initialized(),
    }
}

/// # Errors
/// NOT_INITIALIZED before cuInit and in forked children.
pub(super) fn check_initialized() -> Result {
    let initialized = INITIALIZED.load(Ordering::SeqCst);
    if initialized != 0 && initialized == process::id() {
        Ok(())
    } else {
        Err(Error::NOT_INITIALIZED)
    }
}
