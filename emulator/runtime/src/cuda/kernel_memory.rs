//! Memory as kernels access it: device memory, and host memory that CUDA knows.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use gdremu::gpu::host::Span;
use gdremu::gpu::memory::{Access, Error};
use gdremu::ptx::{Fault, GlobalMemory, Width};

use super::host::Kind;
use super::{address_space, gpus, host, state};

/// Flag of cuMemHostRegister.
const READ_ONLY: u32 = 0x8;

/// The memory of one launch, which looks up every buffer once until memory comes or goes.
#[derive(Default)]
pub(super) struct KernelMemory {
    pieces: Vec<Piece>,
    /// How often the address space had changed when they were looked up.
    changes: u64,
}

/// Memory side by side.
struct Piece {
    start: u64,
    len: u64,
    bytes: *mut u8,
    writable: bool,
    /// Keeps device memory mapped.
    _span: Option<Span>,
}

impl KernelMemory {
    /// Where a value is for the CPU.
    fn find(&mut self, address: u64, width: Width, write: bool) -> Result<*mut u8, Fault> {
        let changes = address_space::changes();
        if changes != self.changes {
            self.pieces.clear();
            self.changes = changes;
        }
        let inside = |piece: &Piece| {
            address.checked_sub(piece.start).filter(|offset| {
                offset
                    .checked_add(width.bytes().into())
                    .is_some_and(|end| end <= piece.len)
            })
        };
        let known = |pieces: &[Piece]| {
            pieces.iter().find_map(|piece| {
                let offset = inside(piece)?;
                Some((piece.bytes.wrapping_add(offset as usize), piece.writable))
            })
        };
        let (place, writable) = match known(&self.pieces) {
            Some(found) => found,
            None => {
                self.pieces.extend(look_up(address).ok_or(Fault)?);
                known(&self.pieces).ok_or(Fault)?
            }
        };
        (writable || !write).then_some(place).ok_or(Fault)
    }
}

/// The buffer, VMM mapping or host memory that an address is in.
fn look_up(address: u64) -> Option<Vec<Piece>> {
    let device = gpus::with(|gpu| {
        if !gpu.is_device_address(address) {
            return None;
        }
        let Some(place) = gpu.memory().place(address) else {
            return Some(Vec::new());
        };
        let (spans, writable) = match gpu.spans(place.base, place.len, Access::ReadWrite) {
            Err(Error::Invalid) => (gpu.spans(place.base, place.len, Access::Read), false),
            spans => (spans, true),
        };
        let mut start = place.base;
        let piece = |span: Span| {
            let len = span.len as u64;
            start += len;
            Piece {
                start: start - len,
                len,
                bytes: span.bytes(),
                writable,
                _span: Some(span),
            }
        };
        Some(spans.unwrap_or_default().into_iter().map(piece).collect())
    });
    device.or_else(|| {
        let state = state::lock();
        let (start, range) = host::find(&state, address as usize)?;
        Some(vec![Piece {
            start: start as u64,
            len: range.len as u64,
            bytes: std::ptr::with_exposed_provenance_mut(start),
            writable: range.kind != Kind::Registered || range.flags & READ_ONLY == 0,
            _span: None,
        }])
    })
}

impl GlobalMemory for KernelMemory {
    fn load(&mut self, address: u64, width: Width, order: Ordering) -> Result<u64, Fault> {
        let place = self.find(address, width, false)?;
        // SAFETY: a multiple of the width, as GlobalMemory says, and memory of a buffer that is
        // mapped; frees wait for kernels. Everybody who shares it with the kernel expects it to change.
        Ok(unsafe {
            match width {
                Width::W8 => AtomicU8::from_ptr(place).load(order).into(),
                Width::W16 => AtomicU16::from_ptr(place.cast()).load(order).into(),
                Width::W32 => AtomicU32::from_ptr(place.cast()).load(order).into(),
                Width::W64 => AtomicU64::from_ptr(place.cast()).load(order),
            }
        })
    }

    fn store(
        &mut self,
        address: u64,
        width: Width,
        value: u64,
        order: Ordering,
    ) -> Result<(), Fault> {
        let place = self.find(address, width, true)?;
        // SAFETY: as in `load`.
        unsafe {
            match width {
                Width::W8 => AtomicU8::from_ptr(place).store(value as u8, order),
                Width::W16 => AtomicU16::from_ptr(place.cast()).store(value as u16, order),
                Width::W32 => AtomicU32::from_ptr(place.cast()).store(value as u32, order),
                Width::W64 => AtomicU64::from_ptr(place.cast()).store(value, order),
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        order: Ordering,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let place = self.find(address, width, true)?;
        macro_rules! update {
            ($atomic:ty, $number:ty) => {{
                // SAFETY: as in `load`.
                let value = unsafe { <$atomic>::from_ptr(place.cast()) };
                let change = |old: $number| Some(change(old.into()) as $number);
                match value.fetch_update(order, Ordering::Relaxed, change) {
                    Ok(old) | Err(old) => old.into(),
                }
            }};
        }
        Ok(match width {
            Width::W8 => update!(AtomicU8, u8),
            Width::W16 => update!(AtomicU16, u16),
            Width::W32 => update!(AtomicU32, u32),
            Width::W64 => update!(AtomicU64, u64),
        })
    }
}
