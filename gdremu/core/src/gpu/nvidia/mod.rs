//! Real GPU memory behind the emulated driver, on a computer with an NVIDIA GPU and no gdrdrv.
//!
//! ```text
//! NvidiaProvider   finds the allocations behind a range, keeps them, maps them
//!   cuda           NVIDIA's libcuda: allocations, and descriptors of them
//!   rm             the GPU driver's resource manager: import of descriptors, BAR1 mappings
//! ```
//!
//! Only memory that CUDA exports can be pinned, that is VMM allocations with POSIX descriptors. So
//! the preload library replaces the program's other allocations by such ones.

pub mod cuda;
mod failure;
mod rm;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::errno::Errno;
use crate::gpu::buffers::{Buffer, Buffers, Freed};
use crate::gpu::mmap::{self, Part, covered};
use crate::gpu::physical::{BLOCK, GPU_PAGE};
use crate::gpu::{PageTableId, Provider};

use cuda::{Cuda, Status};
use failure::Failure;
use rm::{Client, Memory};

/// Pins and maps memory of the computer's NVIDIA GPUs.
#[derive(Default)]
pub struct NvidiaProvider {
    /// By CUDA's number of the GPU.
    buffers: Buffers<i32>,
    tables: BTreeMap<PageTableId, Table>,
    /// Our clients of the resource manager, by CUDA's number of the GPU.
    clients: BTreeMap<i32, Arc<Client>>,
    tables_made: u64,
}

/// A pinned range.
struct Table {
    va: u64,
    len: u64,
    persistent: bool,
    pieces: Vec<Piece>,
}

/// The part of a pinned range that lies in one allocation.
struct Piece {
    memory: Memory,
    /// Where the part starts in the allocation.
    offset: u64,
    len: u64,
}

impl Table {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && start < self.va + self.len && self.va < end
    }
}

impl NvidiaProvider {
    /// Allocates memory as cuMemAlloc does, but such that it can be pinned. `gpu` is CUDA's number.
    pub fn alloc(&mut self, libcuda: &Cuda, gpu: i32, len: u64) -> Result<u64, Status> {
        if let Some(va) = self.buffers.take(gpu, len, 0) {
            return Ok(va);
        }
        let (start, block_len) = libcuda.make_block(gpu, len.max(BLOCK))?;
        self.prepare(libcuda, gpu, || libcuda.export(start));
        self.buffers.add_block(gpu, start, block_len, Buffer { start, len, id: 0 });
        Ok(start)
    }

    /// Frees a buffer from [`NvidiaProvider::alloc`] and returns the pins that lose their memory by
    /// it.
    pub fn free(&mut self, libcuda: &Cuda, va: u64) -> Result<Vec<PageTableId>, Status> {
        let (_, len) = self.buffer(va).ok_or(cuda::INVALID_VALUE)?;
        let pinned = self.tables.values().any(|table| table.overlaps(va, va + len));
        let (start, len) = match self.buffers.free(va, pinned).ok_or(cuda::INVALID_VALUE)? {
            Freed::Part(start, len) => (start, len),
            Freed::Block(base, len) => {
                libcuda.free_block(base, len)?;
                (base, len)
            }
        };
        Ok(self.lost(start, len))
    }

    /// The buffer from [`NvidiaProvider::alloc`] that an address lies in, as its start and the
    /// bytes that were asked for.
    pub fn buffer(&self, va: u64) -> Option<(u64, u64)> {
        self.buffers.find(va).map(|buffer| (buffer.start, buffer.len))
    }

    /// The GPU of the buffer that starts at an address.
    pub fn gpu_of(&self, va: u64) -> Option<i32> {
        self.buffers.kind_of(va)
    }

    /// The program has made VMM memory (`object`) on this GPU.
    pub fn created(&mut self, libcuda: &Cuda, gpu: i32, object: u64) {
        self.prepare(libcuda, gpu, || libcuda.export_object(object));
    }

    /// The pins that lose their memory when that at `[va, va + len)` is freed.
    pub fn lost(&self, va: u64, len: u64) -> Vec<PageTableId> {
        let end = va.saturating_add(len);
        self.tables
            .iter()
            .filter(|(_, table)| !table.persistent && table.overlaps(va, end))
            .map(|(id, _)| *id)
            .collect()
    }

    fn pin(&mut self, va: u64, len: u64, tokens: (u64, u32)) -> Result<Vec<Piece>, Failure> {
        let refused = |step| Failure::refused(step, 0);
        let cuda = Cuda::loaded()?;
        if tokens != (0, 0) && cuda.tokens(va) != Some(tokens) {
            return Err(refused(cuda::NOT_GPU_MEMORY));
        }
        let end = va.checked_add(len).ok_or(refused(cuda::NOT_GPU_MEMORY))?;
        let mut pages = (va..end).step_by(GPU_PAGE as usize);
        if pages.any(|page| self.buffers.is_dead(page)) {
            return Err(refused(cuda::NOT_GPU_MEMORY));
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = va;
        while at < end {
            let allocation = cuda.allocation(at)?;
            let exported = cuda.export(at)?;
            let client = self.client(cuda, allocation.gpu, &exported)?;
            if pieces.first().is_some_and(|first| !first.memory.is_of(&client)) {
                return Err(refused(cuda::NOT_GPU_MEMORY)); // Two GPUs.
            }
            let len = (allocation.base + allocation.len).min(end) - at;
            pieces.push(Piece { memory: client.import(&exported)?, offset: at - allocation.base, len });
            at += len;
        }
        Ok(pieces)
    }

    /// Opens the GPU as soon as the program has any memory there. Descriptors that are opened only
    /// when it first pins would look like leaks of its own.
    fn prepare(&mut self, libcuda: &Cuda, gpu: i32, export: impl FnOnce() -> Result<File, Failure>) {
        if !self.clients.contains_key(&gpu) {
            // A failure here repeats, and is reported, when memory is pinned.
            let _ = export().and_then(|exported| self.client(libcuda, gpu, &exported));
        }
    }

    /// The client for a GPU, of whose memory `exported` is.
    fn client(&mut self, libcuda: &Cuda, gpu: i32, exported: &File) -> Result<Arc<Client>, Failure> {
        if let Some(client) = self.clients.get(&gpu) {
            return Ok(client.clone());
        }
        let instance = rm::device_instance(exported)?;
        let client = Arc::new(Client::new(libcuda.device_minor(gpu)?, instance)?);
        self.clients.insert(gpu, client.clone());
        Ok(client)
    }
}

impl Provider for NvidiaProvider {
    fn get_pages(
        &mut self,
        va: u64,
        len: u64,
        tokens: (u64, u32),
        persistent: bool,
        force_pcie: bool,
    ) -> Result<PageTableId, Errno> {
        if force_pcie {
            return Err(Errno::ENOTSUPP); // As a GPU without a coherent link.
        }
        let pieces = self.pin(va, len, tokens).map_err(|failure| {
            // CUDA's refusal of an address is the program's mistake, the rest is ours to explain.
            if failure.step != cuda::NOT_GPU_MEMORY {
                eprintln!("{failure}");
            }
            failure.errno
        })?;
        self.tables_made += 1;
        let id = PageTableId(self.tables_made);
        let table = Table { va, len, persistent, pieces };
        self.tables.insert(id, table);
        Ok(id)
    }

    fn put_pages(&mut self, table: PageTableId) {
        self.tables.remove(&table);
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize, fixed: Option<usize>) -> Result<usize, Errno> {
        let table = self.tables.get(&table).ok_or(Errno::EINVAL)?;
        let mut files = Vec::new();
        for (i, inside, len) in covered(table.pieces.iter().map(|piece| piece.len), offset, len)? {
            let Piece { memory, offset, .. } = &table.pieces[i];
            let file = memory.prepare_map(offset + inside, len);
            files.push((file.inspect_err(|failure| eprintln!("{failure}"))?, len));
        }
        let parts = files.iter().map(|(file, len)| Part { file: file.as_fd(), offset: 0, len: *len });
        mmap::map_parts(&parts.collect::<Vec<_>>(), fixed)
    }

    fn after_fork(&mut self) {
        self.tables.clear();
        self.clients.clear();
    }
}

impl dyn Provider {
    /// The real GPUs, for the replaced functions of libcuda.
    pub fn nvidia(&mut self) -> &mut NvidiaProvider {
        self.as_kind()
    }
}
