//! Contexts, and each thread's stack of them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::handles::ContextHandle;
use crate::error::{Error, Result, ensure};

/// Flags that a context may have, and those of them that exclude each other.
const FLAGS: u32 = 0xff;
const SCHEDULING: u32 = 0x7;

/// Functions that are not asynchronous wait for their work on memory.
pub(crate) const CTX_SYNC_MEMOPS: u32 = 0x80;

/// Refuses flags that no context has.
pub(crate) fn check_flags(flags: u32) -> Result {
    let valid = flags & !FLAGS == 0 && (flags & SCHEDULING).count_ones() <= 1;
    ensure(valid, Error::INVALID_VALUE)
}

pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) gpu: usize,
    pub(crate) flags: u32,
    /// Ends the running GPU kernels.
    pub(crate) stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<ContextHandle>,
    /// The handle of all its contexts, one after another, because NVIDIA's driver reuses the
    /// address.
    pub(crate) handle: Option<ContextHandle>,
    pub(crate) retained: u32,
}

/// The calling thread's context.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) context: ContextHandle,
    pub(crate) gpu: usize,
}

thread_local! {
    /// The calling thread's contexts. Without a destructor, which would outlive a dlclose of this
    /// object.
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

    pub(crate) fn top(&self) -> Option<ContextHandle> {
        self.len.get().checked_sub(1).map(|top| self.contexts[top].get())
    }

    pub(crate) fn push(&self, context: ContextHandle) -> Result {
        self.contexts.get(self.len.get()).ok_or(Error::OUT_OF_MEMORY)?.set(context);
        self.len.set(self.len.get() + 1);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<ContextHandle> {
        let top = self.top()?;
        self.len.set(self.len.get() - 1);
        Some(top)
    }
}
