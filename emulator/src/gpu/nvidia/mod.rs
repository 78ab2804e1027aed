//! Real GPU memory behind the emulated driver, on a machine with an NVIDIA GPU and no gdrdrv.
//!
//! ```text
//! NvidiaProvider   finds the allocations behind a range, keeps them, maps them
//!   cuda           the real libcuda: which allocation an address belongs to, its export as a descriptor
//!   rm             the GPU driver's resource manager: import of the descriptor, BAR1 mapping
//! ```
//!
//! Only memory that CUDA lets us export can be pinned: VMM allocations with POSIX descriptors and GPUDirect RDMA. The
//! runtime replaces the program's other allocations by such ones.

mod cuda;
mod rm;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;

use crate::errno::Errno;
use crate::gpu::memory::GPU_PAGE;
use crate::gpu::{PageTable, PageTableId, Provider, mmap};

use cuda::Cuda;
use rm::{Client, Memory};

/// A step on the way to the GPU that failed.
#[derive(Debug)]
struct Failure {
    step: &'static str,
    /// What CUDA or the resource manager answered, if they were asked.
    status: u32,
    errno: Errno,
}

impl Failure {
    fn refused(step: &'static str, status: u32) -> Failure {
        Failure { step, status, errno: Errno::EINVAL }
    }

    fn system(step: &'static str, error: &std::io::Error) -> Failure {
        Failure { step, status: 0, errno: Errno(error.raw_os_error().unwrap_or(libc::EIO)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gdremu: nvidia provider: {} failed (status {:#x}, {}); the GPU driver is {}",
            self.step,
            self.status,
            self.errno,
            rm::driver_version()
        )
    }
}

/// Pins and maps memory of the machine's NVIDIA GPUs.
#[derive(Debug)]
pub struct NvidiaProvider {
    cuda: Cuda,
    /// Our client of the resource manager for each GPU, by instance number.
    clients: BTreeMap<u32, Client>,
    tables: BTreeMap<PageTableId, Table>,
    next_id: u64,
}

/// A pinned range.
#[derive(Debug)]
struct Table {
    va: u64,
    len: u64,
    persistent: bool,
    parts: Vec<Part>,
}

/// The part of a pinned range that lies in one allocation.
#[derive(Debug)]
struct Part {
    instance: u32,
    memory: Memory,
    /// Where the part starts in the allocation.
    offset: u64,
    len: u64,
}

impl NvidiaProvider {
    /// A provider over the real CUDA driver.
    ///
    /// # Errors
    /// A line that says which part of the driver is missing.
    pub fn new() -> Result<NvidiaProvider, String> {
        let cuda = Cuda::load()?;
        Ok(NvidiaProvider { cuda, clients: BTreeMap::new(), tables: BTreeMap::new(), next_id: 1 })
    }

    /// The program freed the allocation at `[va, va + len)`: the pins that lose their memory by it.
    pub fn freed(&mut self, va: u64, len: u64) -> Vec<PageTableId> {
        let overlaps = |table: &Table| va < table.va + table.len && table.va < va + len;
        self.tables
            .iter()
            .filter(|(_, table)| !table.persistent && overlaps(table))
            .map(|(id, _)| *id)
            .collect()
    }

    fn pin(&mut self, va: u64, len: u64) -> Result<Vec<Part>, Failure> {
        let mut parts = Vec::new();
        let end = va.checked_add(len).ok_or(Failure::refused("a range past the address space", 0))?;
        let mut at = va;
        while at < end {
            let allocation = self.cuda.allocation(at)?;
            let exported = self.cuda.export(at)?;
            let client = self.client(allocation.gpu, &exported)?;
            let instance = client.0;
            let memory = client.1.import(&exported)?;
            let len = (allocation.base + allocation.len).min(end) - at;
            parts.push(Part { instance, memory, offset: at - allocation.base, len });
            at += len;
        }
        Ok(parts)
    }

    /// The client for the GPU with this CUDA number, whose memory `exported` is.
    fn client(&mut self, gpu: i32, exported: &File) -> Result<(u32, &mut Client), Failure> {
        let instance = rm::device_instance(exported)?;
        let minor = self.cuda.device_minor(gpu)?;
        let client = match self.clients.entry(instance) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => new.insert(Client::new(minor, instance)?),
        };
        Ok((instance, client))
    }

    fn release(&self, parts: Vec<Part>) {
        for part in parts {
            if let Some(client) = self.clients.get(&part.instance)
                && let Err(failure) = client.free(part.memory)
            {
                eprintln!("{failure}");
            }
        }
    }
}

impl Provider for NvidiaProvider {
    fn get_pages(
        &mut self,
        va: u64,
        len: u64,
        _tokens: (u64, u32),
        persistent: bool,
        force_pcie: bool,
    ) -> Result<PageTable, Errno> {
        if force_pcie {
            return Err(Errno::ENOTSUPP); // What a GPU without a coherent link answers.
        }
        if len == 0 || !va.is_multiple_of(GPU_PAGE) || !len.is_multiple_of(GPU_PAGE) {
            return Err(Errno::EINVAL);
        }
        let parts = self.pin(va, len).map_err(|failure| {
            // CUDA's refusal of an address is the program's mistake, the rest is ours to explain.
            if failure.step != cuda::NOT_GPU_MEMORY {
                eprintln!("{failure}");
            }
            failure.errno
        })?;
        let id = PageTableId(self.next_id);
        self.next_id += 1;
        self.tables.insert(id, Table { va, len, persistent, parts });
        Ok(PageTable { id, va, len, runs: Vec::new() })
    }

    fn put_pages(&mut self, table: PageTableId) {
        if let Some(table) = self.tables.remove(&table) {
            self.release(table.parts);
        }
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize) -> Result<usize, Errno> {
        let table = self.tables.get(&table).ok_or(Errno::EINVAL)?;
        let end = offset.checked_add(len as u64).ok_or(Errno::EINVAL)?;
        if len == 0 || end > table.len {
            return Err(Errno::EINVAL);
        }
        let mut files = Vec::new();
        let mut start = 0;
        for part in &table.parts {
            let (first, last) = (offset.max(start), end.min(start + part.len));
            if first < last {
                let client = self.clients.get(&part.instance).ok_or(Errno::EIO)?;
                let bytes = (last - first) as usize;
                let at = part.offset + first - start;
                let file = client.prepare_map(&part.memory, at, bytes).map_err(|failure| {
                    eprintln!("{failure}");
                    failure.errno
                })?;
                files.push((file, bytes));
            }
            start += part.len;
        }
        let parts: Vec<_> = files.iter().map(|(file, len)| (file.as_fd(), 0, *len)).collect();
        mmap::map_files(&parts)
    }

    fn zap(&mut self, addr: usize, len: usize) {
        // SAFETY: the driver names a mapping that it made with `map`, and which its owner has lost.
        let zapped = unsafe { mmap::poison(addr, len) };
        zapped.expect("a mapping can be replaced by a smaller one");
    }
}
