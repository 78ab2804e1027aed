//! Emulated GPUs. Their memory is in files, and the CPU cannot access it at its device addresses.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::address_space::{Access, Error, Memory, PageTableId, Run, Step};
use super::backing::{Backing, Memfds};
use super::emugpu::Emugpu;
use super::mmap::{self, Part, View};
use super::physical::{BLOCK, GPU_BYTES, GPU_PAGE, ObjectId};
use super::provider::{PinRequest, Provider};
use crate::config::{GpuConfig, ProviderKind, YesNo};
use crate::errno::Errno;
use serde::{Deserialize, Serialize};

/// CUDA 12.5, whose GPU driver 555 is the first to refuse pins of parts of GPU pages.
const WHOLE_PAGES: u32 = 12050;

/// Device addresses are reserved when they are needed, in ranges (windows) of at least this many bytes. So small
/// programs reserve few addresses.
const WINDOW: u64 = 128 << 20;

pub struct HostProvider {
    memory: Memory,
    config: GpuConfig,
    backing: Box<dyn Backing>,
    views: BTreeMap<ObjectId, Arc<View>>,
    /// Reserved device addresses, as (start, length).
    windows: Vec<(u64, u64)>,
    /// The process that first used the memory. A forked child has a copy of the metadata, but not the memory.
    owner: Option<u32>,
}

/// The description of a buffer, for processes other than the one that owns the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Shared {
    /// The number, in the process that owns the buffer, of the descriptor of the file that holds the GPU's memory.
    pub descriptor: u32,
    pub gpu: u32,
    /// The offset in the file at which the 2 MiB blocks that hold the buffer start. `blocks` is their length in bytes.
    pub start: u64,
    pub blocks: u64,
    /// The offset at which the buffer starts in the 2 MiB blocks that hold it.
    pub offset: u64,
    pub len: u64,
}

/// The memory of a pinned or exported range, as parts of the file that holds the GPU's memory. Processes that have
/// the file open can map this memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exported {
    pub gpu: usize,
    /// The offset in the file and the length of each part, in the order of the addresses.
    parts: Vec<(u64, u64)>,
}

impl Exported {
    /// Maps `len` bytes of the memory, starting at `offset`, as [`Provider::map`] does.
    pub fn map(&self, file: BorrowedFd<'_>, offset: u64, len: usize, fixed: Option<usize>) -> Result<usize, Errno> {
        let end = offset.saturating_add(len as u64);
        let mut parts = Vec::new();
        let mut part_start = 0;
        for &(in_file, part_len) in &self.parts {
            let first = offset.max(part_start);
            let last = end.min(part_start + part_len);
            if first < last {
                parts.push(Part { file, offset: in_file + (first - part_start), len: (last - first) as usize });
            }
            part_start += part_len;
        }
        if len == 0 || end > part_start {
            return Err(Errno::EINVAL);
        }
        mmap::map_parts(&parts, fixed)
    }
}

/// A part of a range of device addresses. `view` maps the memory for the CPU. In the view, the part begins at `offset`.
pub struct Span {
    view: Arc<View>,
    offset: u64,
    pub len: usize,
}

impl Span {
    /// Returns a pointer to the memory, which is valid as long as `self`. The program can change the memory through
    /// other mappings at any time, so callers copy through the pointer and never make a reference from it.
    pub fn bytes(&self) -> *mut u8 {
        self.view.bytes(self.offset, self.len as u64)
    }
}

impl HostProvider {
    pub fn new(config: &GpuConfig) -> Self {
        let backing: Box<dyn Backing> = match config.provider {
            ProviderKind::Emugpu => Box::new(Emugpu::default()),
            _ => Box::new(Memfds((0..config.gpus).map(|_| None).collect())),
        };
        HostProvider {
            memory: Memory::new(config.gpus as usize, GPU_BYTES),
            config: config.clone(),
            backing,
            views: BTreeMap::new(),
            windows: Vec::new(),
            owner: None,
        }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Changes the allocation metadata, then the memory. If device addresses run out, adds some and repeats `change`.
    ///
    /// # Errors
    /// The error of `change`; [`Error::NoMemory`] if the host has no address space left, or if the backing (the GPUs'
    /// files) fails. Then the metadata is as before the call.
    pub fn change<T>(&mut self, mut change: impl FnMut(&mut Memory) -> Result<T, Error>) -> Result<T, Error> {
        if self.owner.is_none() {
            self.owner = Some(std::process::id());
            self.memory.set_process(std::process::id());
        }
        let before = if self.backing.can_fail() { Some(self.memory.clone()) } else { None };
        let result = loop {
            match change(&mut self.memory) {
                Err(Error::NoAddresses(len)) => self.add_window(len)?,
                result => break result,
            }
        };
        if self.apply_pending().is_err() {
            self.memory = before.expect("memory of the host follows");
            return Err(Error::NoMemory);
        }
        result
    }

    pub fn is_device_address(&self, va: u64) -> bool {
        self.windows.iter().any(|&(start, len)| va >= start && va - start < len)
    }

    /// Returns the memory behind a range of device addresses, for the emulation of the GPU's copy engines.
    pub fn spans(&mut self, va: u64, len: u64, need: Access) -> Result<Vec<Span>, Error> {
        let runs = self.memory.translate(va, len, need)?;
        runs.into_iter().map(|run| self.span(run)).collect()
    }

    /// Describes a live buffer, so that other processes find its memory in the file that holds it.
    pub fn share(&mut self, base: u64) -> Result<Shared, Error> {
        let place = self.memory.place(base).ok_or(Error::Invalid)?;
        let run = self.memory.translate(base, place.len, Access::Read)?[0];
        let object = self.memory.physical.live(place.object);
        let start = self.backing.start(place.object, object);
        let blocks = object.len;
        let offset = run.offset - object.start;
        let file = self.backing.file(run.gpu)?;
        Ok(Shared { descriptor: file.as_raw_fd() as u32, gpu: run.gpu as u32, start, blocks, offset, len: place.len })
    }

    /// Maps the buffer that `shared` describes. Another process has allocated it, with the id `id`, in the memory that
    /// `file` holds. Returns the buffer's device address in this process.
    pub fn import(&mut self, shared: &Shared, id: u64, file: BorrowedFd<'_>) -> Result<u64, Error> {
        let gpu = shared.gpu as usize;
        let Shared { start, blocks, offset, len, .. } = *shared;
        if gpu >= self.config.gpus as usize || blocks > GPU_BYTES || start > GPU_BYTES - blocks {
            return Err(Error::Invalid);
        }
        let va = self.change(|memory| memory.import(gpu, blocks, offset, len, id))?;
        let Ok(view) = View::new(file, start, blocks) else {
            self.change(|memory| memory.free(va))?;
            return Err(Error::NoMemory);
        };
        self.views.insert(self.memory.mapping_at(va)?.object, Arc::new(view));
        Ok(va)
    }

    pub fn exported(&mut self, table: PageTableId) -> Result<(Exported, BorrowedFd<'_>), Errno> {
        let runs = &self.memory.pins.get(&table).ok_or(Errno::EINVAL)?.runs;
        let gpu = runs[0].gpu;
        let mut parts = Vec::new();
        for run in runs {
            let object = self.memory.physical.live(run.object);
            parts.push((self.backing.start(run.object, object) + (run.offset - object.start), run.len));
        }
        Ok((Exported { gpu, parts }, self.backing.file(gpu)?))
    }

    /// Returns the peer-to-peer token and address space of this process, as `CU_POINTER_ATTRIBUTE_P2P_TOKENS` does.
    pub fn tokens(&self) -> (u64, u32) {
        let owner = self.owner.unwrap_or(std::process::id());
        (u64::from(owner) << 16 | 1, owner)
    }

    fn add_window(&mut self, need: u64) -> Result<(), Error> {
        let len = need.max(WINDOW);
        let start = mmap::reserve(len as usize, BLOCK as usize)? as u64;
        self.memory.add_window(start, len);
        self.windows.push((start, len));
        Ok(())
    }

    fn apply_pending(&mut self) -> Result<(), Errno> {
        let steps = std::mem::take(&mut self.memory.steps);
        self.backing.carry_out(&steps)?;
        for step in steps {
            if let Step::Removed(run) = step {
                self.views.remove(&run.object);
                self.backing.forget(run);
            }
        }
        Ok(())
    }

    fn span(&mut self, run: Run) -> Result<Span, Error> {
        let object = self.memory.physical.live(run.object);
        let view = match self.views.entry(run.object) {
            Entry::Occupied(view) => Arc::clone(view.get()),
            Entry::Vacant(place) => {
                let start = self.backing.start(run.object, object);
                let view = View::new(self.backing.file(run.gpu)?, start, object.len)?;
                Arc::clone(place.insert(Arc::new(view)))
            }
        };
        Ok(Span { view, offset: run.offset - object.start, len: run.len as usize })
    }
}

impl Provider for HostProvider {
    fn get_pages(&mut self, request: &PinRequest) -> Result<PageTableId, Errno> {
        let PinRequest { va, len, tokens, persistent, force_pcie } = *request;
        let mine = self.owner == Some(std::process::id());
        if !mine || (tokens != (0, 0) && tokens != self.tokens()) {
            return Err(Errno::EINVAL);
        }
        if force_pcie && !self.config.coherent {
            return Err(Errno::ENOTSUPP);
        }
        let rounds_up = self.config.cuda_version < WHOLE_PAGES;
        let len = if rounds_up { len.next_multiple_of(GPU_PAGE) } else { len };
        let table = self.memory.pin(va, len, persistent)?;
        let gpu = table.runs[0].gpu;
        let refused = if *self.config.rdma.of(gpu) == YesNo::No {
            Errno::EINVAL
        } else if self.memory.pinned_bytes(gpu) > *self.config.bar1_size.of(gpu) {
            Errno::ENOMEM
        } else {
            return Ok(table.id);
        };
        self.memory.unpin(table.id);
        Err(refused)
    }

    fn put_pages(&mut self, table: PageTableId) {
        self.memory.unpin(table);
        self.apply_pending().expect("giving memory back needs none");
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize, fixed: Option<usize>) -> Result<usize, Errno> {
        let (exported, file) = self.exported(table)?;
        exported.map(file, offset, len, fixed)
    }
}

impl dyn Provider {
    pub fn host(&mut self) -> &mut HostProvider {
        self.as_kind().expect("the library for emulated GPUs has no other provider")
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Invalid => Errno::EINVAL,
            Error::NoMemory | Error::NoAddresses(_) => Errno::ENOMEM,
        }
    }
}

/// If a system call for GPU memory fails, the CUDA call reports a lack of GPU memory, whatever the errno.
impl From<Errno> for Error {
    fn from(_: Errno) -> Error {
        Error::NoMemory
    }
}

const _: () = assert!(BLOCK.is_multiple_of(GPU_PAGE), "whole pages in a block");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::emugpu::DEVICE;
    use super::*;
    use crate::config::tests::parse;

    #[test]
    fn backing_failure_rolls_back() {
        if Path::new(DEVICE).exists() {
            return;
        }
        let mut gpu = HostProvider::new(&parse("gdremu --provider emugpu").gpu);
        let free = gpu.memory().free_bytes(0);
        for len in [1, BLOCK] {
            assert_eq!(gpu.change(|m| m.alloc(0, len, true)), Err(Error::NoMemory));
        }
        let created = gpu.change(|m| m.create(0, BLOCK, true));
        assert_eq!(created, Err(Error::NoMemory));
        assert_eq!(gpu.memory().free_bytes(0), free);
        let va = gpu.change(|m| m.reserve(BLOCK, 0, 0)).unwrap();
        assert_eq!(gpu.change(|m| m.unreserve(va, BLOCK)), Ok(()));
    }
}
