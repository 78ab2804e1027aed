//! Opaque handles, as numbers that are never reused, so that a stale one is detected.

use std::collections::BTreeMap;

pub(crate) type ContextHandle = usize;
/// 0, 1 and 2 are the default streams, which are the same here.
pub(crate) type StreamHandle = usize;
pub(crate) type EventHandle = usize;
pub(crate) type ModuleHandle = usize;
pub(crate) type FunctionHandle = usize;
pub(crate) type PoolHandle = usize;

/// Live objects of one kind by handle. `KIND` makes the handles of different kinds different.
pub(crate) struct Handles<T, const KIND: usize> {
    created: usize,
    live: BTreeMap<usize, T>,
}

impl<T, const KIND: usize> Default for Handles<T, KIND> {
    fn default() -> Self {
        Handles { created: 0, live: BTreeMap::new() }
    }
}

impl<T, const KIND: usize> Handles<T, KIND> {
    pub(crate) fn add(&mut self, object: T) -> usize {
        self.created += 1;
        let handle = (KIND << 40) | (self.created << 8);
        self.live.insert(handle, object);
        handle
    }

    /// Stores an object under a handle that had another one.
    pub(crate) fn put(&mut self, handle: usize, object: T) {
        self.live.insert(handle, object);
    }

    pub(crate) fn get(&self, handle: usize) -> Option<&T> {
        self.live.get(&handle)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        self.live.get_mut(&handle)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Option<T> {
        self.live.remove(&handle)
    }

    /// Drops the objects for which `keep` is false, and returns their handles.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) -> Vec<usize> {
        let mut dropped = Vec::new();
        self.live.retain(|&handle, object| {
            let keeps = keep(object);
            dropped.extend((!keeps).then_some(handle));
            keeps
        });
        dropped
    }
}
