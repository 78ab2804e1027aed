//! The physical memory of every GPU. It is allocated as reference-counted objects of whole 2 MiB blocks.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::ranges::Ranges;

/// The bytes of memory of each GPU. They occupy host memory only after their first access.
pub const GPU_BYTES: u64 = 16 << 30;

/// Physical memory is allocated in blocks of 2 MiB, CUDA's allocation granularity.
pub const BLOCK: u64 = 2 << 20;

/// The size of a GPU page, the unit in which NVIDIA's driver pins memory.
pub const GPU_PAGE: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    NoMemory,
    /// There is no free range of this many device addresses. The caller reserves more addresses and repeats the call.
    NoAddresses(u64),
    /// The address, size or handle is not what the call needs.
    Invalid,
}

pub(super) fn end_of(start: u64, len: u64) -> Result<u64, Error> {
    start.checked_add(len).ok_or(Error::Invalid)
}

/// The id of a physical object. No id is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub gpu: usize,
    pub object: ObjectId,
    /// The offset from the start of the GPU's memory.
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Debug)]
pub struct Object {
    pub gpu: usize,
    /// The offset from the start of the GPU's memory.
    pub start: u64,
    pub len: u64,
    /// True if the memory can be pinned for other devices, and mapped by the CPU over BAR1.
    pub rdma: bool,
    /// True if the memory belongs to another process. It cannot be pinned or exported.
    pub imported: bool,
    references: [u32; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A handle from cuMemCreate or cuMemRetainAllocationHandle.
    Handle,
    /// Either a mapping at device addresses, or a page table, which lists pinned or exported memory.
    Use,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Physical {
    free: Vec<Ranges>,
    objects: BTreeMap<ObjectId, Object>,
    created: u64,
}

impl Physical {
    pub(super) fn new(gpus: usize, size: u64) -> Self {
        let mut all = Ranges::default();
        all.give(0, size);
        Physical { free: vec![all; gpus], ..Default::default() }
    }

    pub(super) fn create(&mut self, gpu: usize, len: u64, rdma: bool, holder: Holder) -> Result<ObjectId, Error> {
        let start = self.free[gpu].take(len, BLOCK).ok_or(Error::NoMemory)?;
        self.created += 1;
        let id = ObjectId(self.created);
        let object = Object { gpu, start, len, rdma, imported: false, references: [0; 2] };
        self.objects.insert(id, object);
        self.hold(id, holder);
        Ok(id)
    }

    /// Returns an object that has at least one reference.
    pub(super) fn live(&self, id: ObjectId) -> &Object {
        &self.objects[&id]
    }

    /// Returns the object, if the program has a handle to it.
    pub(super) fn by_handle(&self, id: ObjectId) -> Result<&Object, Error> {
        match self.objects.get(&id) {
            Some(object) if object.references[Holder::Handle as usize] > 0 => Ok(object),
            _ => Err(Error::Invalid),
        }
    }

    pub(super) fn live_mut(&mut self, id: ObjectId) -> &mut Object {
        self.objects.get_mut(&id).expect("something keeps it alive")
    }

    pub(super) fn hold(&mut self, id: ObjectId, holder: Holder) {
        self.live_mut(id).references[holder as usize] += 1;
    }

    /// Drops a reference. If it was the last one, frees the object and returns its memory.
    pub(super) fn release(&mut self, id: ObjectId, holder: Holder) -> Option<Run> {
        self.live_mut(id).references[holder as usize] -= 1;
        let object = self.live(id);
        if object.references != [0; 2] {
            return None;
        }
        let run = Run { gpu: object.gpu, object: id, offset: object.start, len: object.len };
        self.free[run.gpu].give(run.offset, run.len);
        self.objects.remove(&id);
        Some(run)
    }

    pub(super) fn free_bytes(&self, gpu: usize) -> u64 {
        self.free[gpu].total()
    }
}
