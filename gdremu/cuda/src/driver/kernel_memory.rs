//! The memory that GPU kernels access: device memory, and host memory that is known to CUDA.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use gdremu_core::gpu::address_space::Access;
use gdremu_core::gpu::files::{HostProvider, Span};
use gdremu_ptx::{Change, Fault, GlobalMemory};

use super::host;
use super::state::{self, Kind};
use crate::gpus;

/// The memory that one launch of a GPU kernel accesses. Each address is looked up when it is first accessed, and again
/// after any memory was mapped or unmapped.
pub(super) struct KernelMemory {
    gpu: usize,
    pieces: Vec<Piece>,
    /// The value of [`gpus::memory_changes`] when `pieces` were looked up.
    changes: u64,
}

struct Piece {
    start: u64,
    len: u64,
    bytes: *mut u8,
    writable: bool,
    /// Keeps the piece mapped if it is device memory; `None` for host memory.
    _span: Option<Span>,
}

impl Piece {
    fn contains(&self, address: u64) -> bool {
        address >= self.start && address - self.start < self.len
    }
}

impl KernelMemory {
    pub(super) fn new(gpu: usize) -> Self {
        KernelMemory { gpu, pieces: Vec::new(), changes: 0 }
    }

    /// Returns the CPU's address of the `size` bytes that the GPU kernel accesses at `address`.
    fn find(&mut self, address: u64, size: usize, write: bool) -> Result<*mut u8, Fault> {
        let changes = gpus::memory_changes();
        if changes != self.changes {
            self.pieces.clear();
            self.changes = changes;
        }
        let piece = match self.pieces.iter().position(|piece| piece.contains(address)) {
            Some(index) => &self.pieces[index],
            None => {
                let pieces = self.look_up(address)?;
                self.pieces.extend(pieces);
                self.pieces.iter().find(|piece| piece.contains(address)).ok_or(Fault)?
            }
        };
        let offset = address - piece.start;
        if piece.len - offset < size as u64 || write && !piece.writable {
            return Err(Fault);
        }
        Ok(piece.bytes.wrapping_add(offset as usize))
    }

    /// Returns the whole buffer, mapping of cuMemMap, or range of host memory that an address is in. It can consist of
    /// several pieces. Returns none for a device address that this GPU may not access.
    fn look_up(&self, address: u64) -> Result<Vec<Piece>, Fault> {
        let state = state::lock();
        if gpus::with(|gpu| gpu.is_device_address(address)) {
            return Ok(gpus::with(|gpu| self.look_up_on_gpus(gpu, address)));
        }
        let range = host::find(&state, address as usize).ok_or(Fault)?;
        Ok(vec![Piece {
            start: range.start as u64,
            len: range.len as u64,
            bytes: std::ptr::with_exposed_provenance_mut(range.start),
            writable: range.kind != Kind::Registered || range.flags & host::READ_ONLY == 0,
            _span: None,
        }])
    }

    fn look_up_on_gpus(&self, gpu: &mut HostProvider, address: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let Some(place) = gpu.memory().place(address) else { return pieces };
        let access = match place.vmm {
            true => gpu.memory().access(place.base, self.gpu).unwrap_or_default(),
            false if place.gpu == self.gpu => Access::ReadWrite,
            false => Access::None, // Another GPU can access only memory that cuMemMap has mapped.
        };
        if access == Access::None {
            return pieces;
        }
        let mut start = place.base;
        for span in gpu.spans(place.base, place.len, access).unwrap_or_default() {
            let len = span.len as u64;
            let writable = access == Access::ReadWrite;
            pieces.push(Piece { start, len, bytes: span.bytes(), writable, _span: Some(span) });
            start += len;
        }
        pieces
    }
}

/// Runs `$access` with the atomic integer of `$size` bytes at `$place`.
macro_rules! atomic {
    ($size:expr, $place:expr, |$atomic:ident| $access:expr) => {
        match $size {
            1 => atomic!(@ AtomicU8, $place, |$atomic| $access),
            2 => atomic!(@ AtomicU16, $place, |$atomic| $access),
            4 => atomic!(@ AtomicU32, $place, |$atomic| $access),
            8 => atomic!(@ AtomicU64, $place, |$atomic| $access),
            _ => return Err(Fault),
        }
    };
    (@ $type:ty, $place:expr, |$atomic:ident| $access:expr) => {{
        // SAFETY: `find` returned the place, so it is inside a piece. The piece stays mapped: its `Span` keeps device
        // memory, and functions that free host memory wait for GPU kernels. The place is aligned, because the GPU
        // kernel's address is a multiple of the size, device memory is mapped by whole pages, and host memory has the
        // same address on the CPU. Programs that access the memory at the same time expect accesses by a GPU.
        let $atomic = unsafe { <$type>::from_ptr($place.cast()) };
        $access
    }};
}

impl GlobalMemory for KernelMemory {
    fn load(&mut self, address: u64, size: usize) -> Result<u64, Fault> {
        let bytes = self.find(address, size, false)?;
        Ok(atomic!(size, bytes, |atomic| atomic.load(Acquire) as _))
    }

    fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), Fault> {
        let bytes = self.find(address, size, true)?;
        atomic!(size, bytes, |atomic| atomic.store(value as _, Release));
        Ok(())
    }

    fn update(&mut self, address: u64, size: usize, change: &Change<'_>) -> Result<u64, Fault> {
        let bytes = self.find(address, size, true)?;
        Ok(atomic!(size, bytes, |atomic| {
            let mut old = atomic.load(Relaxed);
            while let Err(newer) = atomic.compare_exchange_weak(old, change(old as _) as _, AcqRel, Relaxed) {
                old = newer;
            }
            old as _
        }))
    }
}
