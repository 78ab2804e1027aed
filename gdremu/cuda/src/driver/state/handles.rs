//! Opaque handles are numbers. A stale handle is detected, because no number is used twice, except that of a primary
//! context that is created again.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

pub(crate) type ContextHandle = usize;
/// 0, 1 and 2 are CUDA's default streams (NULL, legacy, per-thread). Here they are the same stream.
pub(crate) type StreamHandle = usize;
pub(crate) type EventHandle = usize;
pub(crate) type ModuleHandle = usize;
pub(crate) type FunctionHandle = usize;

/// The live objects of one kind, found by their handles. Handles contain `KIND`, so handles of different kinds differ.
/// The use of an invalid handle fails with `ERROR`.
pub(crate) struct Handles<T, const KIND: usize, const ERROR: i32> {
    created: usize,
    live: BTreeMap<usize, T>,
}

impl<T, const KIND: usize, const ERROR: i32> Default for Handles<T, KIND, ERROR> {
    fn default() -> Self {
        Handles { created: 0, live: BTreeMap::new() }
    }
}

impl<T, const KIND: usize, const ERROR: i32> Handles<T, KIND, ERROR> {
    pub(crate) fn add(&mut self, object: T) -> usize {
        self.add_as(None, object)
    }

    /// Stores an object under `handle`, which an earlier object had. If `handle` is `None`, makes a new handle.
    pub(crate) fn add_as(&mut self, handle: Option<usize>, object: T) -> usize {
        self.created += 1;
        let handle = handle.unwrap_or((KIND << 40) | (self.created << 8));
        self.live.insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<&T> {
        self.live.get(&handle).ok_or(Error(ERROR))
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Result<&mut T> {
        self.live.get_mut(&handle).ok_or(Error(ERROR))
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Result<T> {
        self.live.remove(&handle).ok_or(Error(ERROR))
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.live.retain(|_, object| keep(object));
    }
}
