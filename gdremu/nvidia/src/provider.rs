//! The memory of real GPUs behind the emulated driver: finds the allocation that a pin covers, keeps it, and maps it.
//!
//! Only memory that CUDA can export as a file descriptor can be pinned. Only some VMM (virtual memory management)
//! allocations can be exported in this way, so gdremu makes one of these when the program requests other memory.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use gdremu_core::errno::Errno;
use gdremu_core::gpu::buffers::{Buffer, Buffers, Freed};
use gdremu_core::gpu::mmap::{self, Part};
use gdremu_core::gpu::physical::{BLOCK, GPU_PAGE};
use gdremu_core::gpu::{PageTableId, PinRequest, Provider};

use crate::cuda::{self, Cuda, Failure, NOT_GPU_MEMORY, Status};
use crate::rm::{Client, Memory};

#[derive(Default)]
pub(crate) struct NvidiaProvider {
    /// The buffers that gdremu's replacement of cuMemAlloc made, each with CUDA's number of its GPU.
    pub(crate) buffers: Buffers<i32>,
    tables: BTreeMap<PageTableId, Table>,
    /// Our connections to the GPU driver's resource manager, by CUDA's number of the GPU.
    clients: BTreeMap<i32, Arc<Client>>,
    tables_made: u64,
}

struct Table {
    va: u64,
    len: u64,
    persistent: bool,
    memory: Memory,
    /// The offset of `va`, the start of the pinned range, in its allocation.
    offset: u64,
}

impl Table {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && start < self.va + self.len && self.va < end
    }
}

impl NvidiaProvider {
    /// Allocates memory as cuMemAlloc does, but such that it can be pinned. `gpu` is CUDA's number of the GPU.
    pub(crate) fn alloc(&mut self, libcuda: &Cuda, gpu: i32, len: u64) -> Result<u64, Status> {
        if let Some(va) = self.buffers.take(gpu, len, 0) {
            return Ok(va);
        }
        let block = libcuda.make_block(gpu, len.max(BLOCK))?;
        let start = block.base;
        self.prepare(libcuda, gpu, || libcuda.export(start));
        self.buffers.add_block(gpu, block.len, Buffer { start, len, id: 0 });
        Ok(start)
    }

    /// Frees a buffer from [`NvidiaProvider::alloc`]. Returns the pins that lose their memory.
    pub(crate) fn free(&mut self, libcuda: &Cuda, va: u64) -> Result<Vec<PageTableId>, Status> {
        let buffer = self.buffers.starting_at(va).ok_or(cuda::INVALID_VALUE)?;
        let pinned = self.tables.values().any(|table| table.overlaps(va, va + buffer.len));
        let Freed { start, len, is_block } = self.buffers.free(buffer, pinned);
        if is_block {
            libcuda.free_block(start, len)?;
        }
        Ok(self.lost(start, len))
    }

    /// Returns the pins that lose memory when `[va, va + len)` is freed. Persistent pins lose none.
    pub(crate) fn lost(&self, va: u64, len: u64) -> Vec<PageTableId> {
        let end = va.saturating_add(len);
        let lost = self.tables.iter().filter(|(_, table)| !table.persistent && table.overlaps(va, end));
        lost.map(|(id, _)| *id).collect()
    }

    fn pin(&mut self, request: &PinRequest) -> Result<Table, Failure> {
        let PinRequest { va, len, tokens, persistent, .. } = *request;
        let Some(cuda) = Cuda::get() else {
            return Err(Failure { step: "the search for libcuda", status: 0, errno: Errno::ENODEV });
        };
        let allocation = cuda.allocation(va)?;
        let offset = va - allocation.base;
        let is_wrong = tokens != (0, 0) && cuda.tokens(va) != Some(tokens) || !len.is_multiple_of(GPU_PAGE);
        let mut pages = (va..va.saturating_add(len)).step_by(GPU_PAGE as usize);
        // Like the GPU driver, this refuses a range that exceeds an allocation, or a page whose buffers were all freed.
        if is_wrong || len > allocation.len - offset || pages.any(|page| self.buffers.is_dead(page)) {
            return Err(Failure::refused(NOT_GPU_MEMORY, 0));
        }
        let exported = cuda.export(va)?;
        let client = self.client(cuda, allocation.gpu, &exported)?;
        Ok(Table { va, len, persistent, memory: client.import(&exported)?, offset })
    }

    /// Opens the GPU's device files as soon as the program has memory on it. They stay open. If the first pin opened
    /// them, a test that counts descriptors before the pin and after the unpin would report a leak.
    pub(crate) fn prepare(&mut self, libcuda: &Cuda, gpu: i32, export: impl FnOnce() -> Result<File, Failure>) {
        if !self.clients.contains_key(&gpu)
            && let Ok(exported) = export()
        {
            // An error need not be reported, because it comes again when memory is pinned, and is reported then.
            let _ = self.client(libcuda, gpu, &exported);
        }
    }

    /// Returns the client of the resource manager for a GPU. `exported` is a descriptor of memory of this GPU.
    fn client(&mut self, libcuda: &Cuda, gpu: i32, exported: &File) -> Result<Arc<Client>, Failure> {
        if let Some(client) = self.clients.get(&gpu) {
            return Ok(client.clone());
        }
        let client = Arc::new(Client::new(libcuda.device_minor(gpu)?, exported)?);
        self.clients.insert(gpu, client.clone());
        Ok(client)
    }
}

impl Provider for NvidiaProvider {
    fn get_pages(&mut self, request: &PinRequest) -> Result<PageTableId, Errno> {
        if request.force_pcie {
            return Err(Errno::ENOTSUPP); // The GPU driver also refuses this for GPUs without a coherent link.
        }
        let table = self.pin(request)?;
        self.tables_made += 1;
        let id = PageTableId(self.tables_made);
        self.tables.insert(id, table);
        Ok(id)
    }

    fn put_pages(&mut self, table: PageTableId) {
        self.tables.remove(&table);
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize, fixed: Option<usize>) -> Result<usize, Errno> {
        let table = self.tables.get(&table).ok_or(Errno::EINVAL)?;
        let file = table.memory.prepare_map(table.offset + offset, len)?;
        mmap::map_parts(&[Part { file: file.as_fd(), offset: 0, len }], fixed)
    }

    fn after_fork(&mut self) {
        self.tables.clear();
        self.clients.clear();
    }
}
