//! Owners of mapped memory, and lists of owners.
#![forbid(unsafe_code)]

use std::mem;
use std::sync::Arc;

use gdrcopy::memory::OwnedMapping;
use gdrcopy::owned::{Owned, OwnedSlice, View};
use gdrcopy::{Mapped as _, MappedSlice, Mapping, PoolBuffer, Result};

use crate::access::Slice;
use crate::given::Given;
use crate::ops::Args;

/// Mapped memory with its owner, and with the address and the length that the test expects.
pub(crate) struct Mapped {
    pub(crate) owner: Owner,
    pub(crate) start: u64,
    pub(crate) len: usize,
    /// While this reference or a clone of it exists, the test expects that the mapping or the buffer still exists.
    /// Dropping this struct drops the reference after the owner; `mem::forget` leaks both.
    pub(crate) alive: Arc<()>,
}

pub(crate) enum Owner {
    Mapping(Arc<Mapping>),
    Buffer(Arc<PoolBuffer>),
    Owned(Arc<OwnedMapping<Given>>),
    Slice(OwnedSlice),
}

impl Mapped {
    pub(crate) fn new(owner: Owner, start: u64, len: usize) -> Mapped {
        Mapped { owner, start, len, alive: Arc::new(()) }
    }

    pub(crate) fn slice(&self) -> Slice<'_> {
        let mapped = match &self.owner {
            Owner::Mapping(mapping) => mapping.as_slice(),
            Owner::Buffer(buffer) => buffer.as_slice(),
            Owner::Owned(mapping) => mapping.as_slice(),
            Owner::Slice(owned) => owned.as_slice(),
        };
        Slice::new(mapped, self.start, self.len)
    }

    /// Makes a view that keeps the owner alive.
    pub(crate) fn view<V: View>(
        &self,
        view: impl for<'m> FnOnce(MappedSlice<'m>) -> Result<V::Of<'m>>,
    ) -> Result<Owned<V>> {
        match &self.owner {
            Owner::Mapping(mapping) => Owned::new(Arc::clone(mapping), view),
            Owner::Buffer(buffer) => Owned::new(Arc::clone(buffer), view),
            Owner::Owned(mapping) => Owned::new(Arc::clone(mapping), view),
            Owner::Slice(owned) => Owned::new(Arc::new(owned.clone()), view),
        }
    }
}

/// Returns the element of the list that `args` selects, or `None` if the list is empty.
pub(crate) fn any_of<'a, T>(list: &'a [T], args: &Args) -> Option<&'a T> {
    list.get(args.which % list.len().max(1))
}

/// Takes the element that `args` selects out of the list. Returns `None` if the list is empty.
pub(crate) fn take<T>(list: &mut Vec<T>, args: &Args) -> Option<T> {
    if list.is_empty() {
        return None;
    }
    Some(list.swap_remove(args.which % list.len()))
}

/// Drops the element of the list that `args` selects, or leaks it if `forget` is true. Returns false for an empty list.
pub(crate) fn discard<T>(list: &mut Vec<T>, args: &Args, forget: bool) -> bool {
    match take(list, args) {
        None => return false,
        Some(taken) if forget => mem::forget(taken),
        Some(taken) => drop(taken),
    }
    true
}
