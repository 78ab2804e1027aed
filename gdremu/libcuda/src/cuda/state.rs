//! What the stand-in remembers: contexts, streams, events, modules, and who allocated what. One lock for all
//! of it; where the emulated machine is needed too, this lock is taken first.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::{Error, Result};
use super::event::Event;
use super::handles::Handles;
use super::host::HostRange;
use super::module::{Function, Module};
use super::pool::Pool;
use super::stream::Stream;
use super::work::{Queue, QueueId};

/// CUcontext.
pub(super) type ContextHandle = usize;

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: u64,
    pub(super) gpu: usize,
    pub(super) flags: u32,
    /// Contexts whose memory this one may use (cuCtxEnablePeerAccess).
    pub(super) peers: BTreeSet<ContextHandle>,
    /// Ends the kernels that run.
    pub(super) stop: Arc<AtomicBool>,
}

/// A GPU's primary context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Primary {
    pub(super) context: Option<ContextHandle>,
    pub(super) retained: u32,
    pub(super) flags: u32,
}

/// What is known of a cuMemAlloc'd buffer beyond its place.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The context it is freed with; none for memory from a pool.
    pub(super) context: Option<ContextHandle>,
    pub(super) pool: Option<usize>,
    pub(super) sync_memops: bool,
}

/// Everything that outlives a call.
#[derive(Debug)]
pub(super) struct State {
    pub(super) contexts: Handles<Context, 0xC1>,
    pub(super) primaries: BTreeMap<usize, Primary>,
    /// By device address.
    pub(super) allocations: BTreeMap<u64, Allocation>,
    /// Host memory that CUDA knows, by address.
    pub(super) host: BTreeMap<usize, HostRange>,
    pub(super) streams: Handles<Stream, 0xC2>,
    pub(super) events: Handles<Event, 0xC3>,
    pub(super) modules: Handles<Module, 0xC5>,
    pub(super) functions: Handles<Function, 0xC6>,
    /// What a kernel did wrong, for good, as with NVIDIA's driver: only a new process can go on.
    pub(super) failed: Option<Error>,
    /// Streams that have not done all their work.
    pub(super) queues: BTreeMap<QueueId, Queue>,
    pub(super) pools: Handles<Pool, 0xC4>,
    /// The default and the current pool of each GPU.
    pub(super) default_pools: BTreeMap<usize, usize>,
    pub(super) current_pools: BTreeMap<usize, usize>,
    ids: u64,
}

impl State {
    /// # Errors
    /// What a kernel did wrong.
    pub(super) fn check(&self) -> Result {
        self.failed.map_or(Ok(()), Err)
    }

    /// A number that was not given out before.
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

static STATE: Mutex<State> = Mutex::new(State {
    contexts: Handles::new(),
    primaries: BTreeMap::new(),
    allocations: BTreeMap::new(),
    host: BTreeMap::new(),
    streams: Handles::new(),
    events: Handles::new(),
    modules: Handles::new(),
    functions: Handles::new(),
    failed: None,
    queues: BTreeMap::new(),
    pools: Handles::new(),
    default_pools: BTreeMap::new(),
    current_pools: BTreeMap::new(),
    ids: 0,
});

/// Takes the lock. Never held while the program's memory is touched or its functions run: both may
/// not come back. The same goes for kernels.
pub(super) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that called cuInit, or 0.
static INITIALISED: AtomicU32 = AtomicU32::new(0);

/// cuInit. A child forked after its parent's cuInit cannot have CUDA.
///
/// # Errors
/// NOT_INITIALIZED in such a child.
pub(super) fn initialise() -> Result {
    match INITIALISED.compare_exchange(0, process::id(), Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(()),
        Err(_) => check_initialised(),
    }
}

/// # Errors
/// NOT_INITIALIZED before cuInit and in forked children.
pub(super) fn check_initialised() -> Result {
    let initialised = INITIALISED.load(Ordering::SeqCst);
    if initialised != 0 && initialised == process::id() {
        Ok(())
    } else {
        Err(Error::NOT_INITIALIZED)
    }
}

thread_local! {
    /// The calling thread's contexts. Without a destructor, which would outlive a dlclose of this
    /// object.
    pub(super) static STACK: Stack = const { Stack::new() };
}

const DEPTH: usize = 64;

/// A stack of contexts, the top of which is current.
pub(super) struct Stack {
    contexts: [Cell<ContextHandle>; DEPTH],
    len: Cell<usize>,
}

impl Stack {
    const fn new() -> Self {
        Stack {
            contexts: [const { Cell::new(0) }; DEPTH],
            len: Cell::new(0),
        }
    }

    pub(super) fn top(&self) -> Option<ContextHandle> {
        self.len
            .get()
            .checked_sub(1)
            .map(|top| self.contexts[top].get())
    }

    /// # Errors
    /// OUT_OF_MEMORY when the stack is full.
    pub(super) fn push(&self, context: ContextHandle) -> Result {
        self.contexts
            .get(self.len.get())
            .ok_or(Error::OUT_OF_MEMORY)?
            .set(context);
        self.len.set(self.len.get() + 1);
        Ok(())
    }

    pub(super) fn pop(&self) -> Option<ContextHandle> {
        let top = self.top()?;
        self.len.set(self.len.get() - 1);
        Some(top)
    }
}
