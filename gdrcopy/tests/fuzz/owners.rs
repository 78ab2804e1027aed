//! Owners of mapped memory, and lists of owners.
#![forbid(unsafe_code)]

use std::mem;
use std::sync::Arc;

use gdrcopy::memory::HostMemory;
use gdrcopy::owned::OwnedSlice;
use gdrcopy::{Mapped as _, MappedSlice, Mapping, OwnedMapping, PoolBuffer};

use crate::access::Slice;
use crate::given::Given;
use crate::memory::Entry;
use crate::ops::Args;

/// Something that is mapped.
pub(crate) struct Mapped {
    pub(crate) owner: Owner,
    pub(crate) start: u64,
    pub(crate) len: usize,
    /// It, and the pin or the pool, know by it whether this still exists, though forgotten.
    pub(crate) _alive: Arc<()>,
    /// Dropped after the mapping.
    pub(crate) _host: Option<Arc<HostPart>>,
}

/// Memory of the host that pins are of. They and their mappings keep it: contract of `Gdr::pin`.
pub(crate) struct HostPart {
    pub(crate) _entry: Entry,
    pub(crate) _memory: HostMemory,
}

pub(crate) enum Owner {
    Mapping(Mapping),
    Buffer(PoolBuffer),
    Owned(OwnedMapping<Given>),
    Slice(OwnedSlice),
}

impl Mapped {
    pub(crate) fn new(owner: Owner, start: u64, len: usize) -> Mapped {
        let _alive = Arc::new(());
        Mapped { owner, start, len, _alive, _host: None }
    }

    pub(crate) fn slice(&self) -> Slice<'_> {
        Slice::new(self.as_slice(), self.start, self.len)
    }
}

impl gdrcopy::Mapped for Mapped {
    fn as_slice(&self) -> MappedSlice<'_> {
        match &self.owner {
            Owner::Mapping(mapping) => mapping.as_slice(),
            Owner::Buffer(buffer) => buffer.as_slice(),
            Owner::Owned(mapping) => mapping.as_slice(),
            Owner::Slice(owned) => owned.as_slice(),
        }
    }
}

/// One of them, if there is any.
pub(crate) fn any_of<'a, T>(list: &'a [T], args: &Args) -> Option<&'a T> {
    list.get(args.which % list.len().max(1))
}

/// One of them, which leaves the list.
pub(crate) fn take<T>(list: &mut Vec<T>, args: &Args) -> Option<T> {
    let index = args.which % list.len().max(1);
    (index < list.len()).then(|| list.swap_remove(index))
}

/// Drops or forgets one of them, and returns whether there was any.
pub(crate) fn discard<T>(list: &mut Vec<T>, args: &Args, forget: bool) -> bool {
    let taken = take(list, args);
    let is_some = taken.is_some();
    if forget {
        mem::forget(taken)
    } else {
        drop(taken)
    }
    is_some
}
