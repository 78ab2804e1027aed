//! The physical memory of every GPU, in objects of whole blocks, alive as long as anything refers
//! to them.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::ranges::Ranges;

/// Bytes of each GPU's memory. They occupy host memory only once touched.
pub const GPU_BYTES: u64 = 16 << 30;

/// Physical memory is allocated in blocks of 2 MiB, CUDA's allocation granularity.
pub const BLOCK: u64 = 2 << 20;

/// Pages of a GPU as its driver pins them.
pub const GPU_PAGE: u64 = 64 << 10;

/// Names a physical object; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// A contiguous piece of one GPU's physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub gpu: usize,
    pub object: ObjectId,
    /// Offset from the start of the GPU's memory.
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Debug)]
pub struct Object {
    pub gpu: usize,
    /// Offset from the start of the GPU's memory.
    pub start: u64,
    /// Bytes, a multiple of [`BLOCK`].
    pub len: u64,
    /// True if other devices (and so the CPU through BAR1) may be given its pages.
    pub rdma: bool,
    /// True if a POSIX file descriptor may be exported for it.
    pub exportable: bool,
    /// True if its bytes are those of another process. It cannot be pinned or exported.
    pub imported: bool,
    /// References held by each [`Holder`].
    references: [u32; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// cuMemCreate, cuMemRetainAllocationHandle.
    Handle,
    /// A mapping into the address space or a page table.
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
        let mut free: Vec<Ranges> = Vec::new();
        free.resize_with(gpus, Ranges::default);
        free.iter_mut().for_each(|ranges| ranges.give(0, size));
        Physical { free, ..Default::default() }
    }

    /// A new object of `len` bytes with one reference, or `None` if the GPU is full.
    pub(super) fn create(
        &mut self,
        gpu: usize,
        len: u64,
        rdma: bool,
        exportable: bool,
        holder: Holder,
    ) -> Option<ObjectId> {
        let start = self.free.get_mut(gpu)?.take(len, BLOCK)?;
        self.created += 1;
        let id = ObjectId(self.created);
        let object = Object { gpu, start, len, rdma, exportable, imported: false, references: [0; 2] };
        self.objects.insert(id, object);
        self.hold(id, holder);
        Some(id)
    }

    pub(super) fn get(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// The object, if the program has a handle to it.
    pub(super) fn by_handle(&self, id: ObjectId) -> Option<&Object> {
        self.get(id).filter(|object| object.references[Holder::Handle as usize] > 0)
    }

    /// Marks a live object as memory of another process.
    pub(super) fn set_imported(&mut self, id: ObjectId) {
        self.objects.get_mut(&id).expect("alive").imported = true;
    }

    pub(super) fn hold(&mut self, id: ObjectId, holder: Holder) {
        *self.count(id, holder) += 1;
    }

    /// Takes a reference away. The last one frees the memory, which is returned.
    pub(super) fn release(&mut self, id: ObjectId, holder: Holder) -> Option<Run> {
        *self.count(id, holder) -= 1;
        let object = &self.objects[&id];
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

    fn count(&mut self, id: ObjectId, holder: Holder) -> &mut u32 {
        &mut self.objects.get_mut(&id).expect("references are to live objects").references[holder as usize]
    }
}
