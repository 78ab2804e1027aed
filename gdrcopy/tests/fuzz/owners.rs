//! Owners of mapped memory, and lists of owners.
#![forbid(unsafe_code)]

use std::mem;
use std::sync::Arc;

use gdrcopy::memory::HostMemory;
use gdrcopy::pin_cache::CachedSlice;
use gdrcopy::{Mapped as _, Mapping, PoolBuffer};

use crate::access::Slice;
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
    Cached(CachedSlice),
}

impl Mapped {
    pub(crate) fn slice(&self) -> Slice<'_> {
        let mapped = match &self.owner {
            Owner::Mapping(mapping) => mapping.as_slice(),
            Owner::Buffer(buffer) => buffer.as_slice(),
            Owner::Cached(cached) => cached.as_slice(),
        };
        Slice::new(mapped, self.start, self.len)
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
