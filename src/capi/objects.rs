//! What stands behind the handles, and what C programs may do with it in any order.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::capi::handles::{self, Object, Table};
use crate::capi::slots::{Slot, state};
use crate::error::{Error, Result};
use crate::gdr::Gdr;
use crate::log;
use crate::mapping::Mapping;
use crate::pin::Pin;
use crate::types::{Info, MapFlag, MappingType, P2pTokens, PinFlags};

/// Behind a `gdr_t`: an open driver and the handles of its pins.
#[derive(Debug)]
pub(super) struct OpenGdr {
    gdr: Gdr,
    pins: BTreeSet<usize>,
}

/// Behind a `gdr_mh_t`: a pin, its mapping while it has one, and the handle of its owner.
#[derive(Debug)]
pub(super) struct PinnedBuffer {
    // Dropped in this order: unmapped first, then unpinned.
    mapping: Option<Mapping>,
    pin: Pin,
    owner: usize,
}

impl Object for OpenGdr {
    const STATE: u32 = state::GDR;
    const ARGUMENT: &'static str = "g";

    fn show(&self, slot: &Slot) {
        slot.show_descriptor(self.gdr.descriptor());
    }
}

impl Object for PinnedBuffer {
    const STATE: u32 = state::PIN;
    const ARGUMENT: &'static str = "handle";

    fn show(&self, slot: &Slot) {
        slot.show_driver_handle(self.pin.driver_handle());
    }
}

impl PinnedBuffer {
    fn check_owner(&self, g: usize) -> Result<()> {
        if self.owner == g {
            Ok(())
        } else {
            Err(Error::ForeignPin)
        }
    }

    /// Unmaps where mapped; an error leaves it mapped.
    fn unmap(&mut self) -> Result<()> {
        let mapping = self.mapping.take().ok_or(Error::NotMapped)?;
        mapping.unmap().map_err(|(mapping, error)| {
            self.mapping = Some(mapping);
            error
        })
    }

    /// Unmaps and unpins. All is given back in any case; the first error counts.
    fn release(self) -> Result<()> {
        let unmapped = match self.mapping.map(Mapping::unmap) {
            Some(Err((_, error))) => Err(error),
            _ => Ok(()),
        };
        unmapped.and(self.pin.unpin())
    }
}

/// Opens the driver and gives it a handle.
pub(super) fn open() -> Result<usize> {
    log::read_settings();
    let table = Table::enter()?;
    table.insert(OpenGdr {
        gdr: Gdr::open()?,
        pins: BTreeSet::new(),
    })
}

/// Gives back all pins of `g`, then closes it. Goes on after errors; the first one counts.
pub(super) fn close(g: usize) -> Result<()> {
    let OpenGdr { gdr, pins } = handles::take::<OpenGdr>(g, |_| Ok(()))?;
    let mut result = Ok(());
    for handle in pins {
        // An unpin of another thread may be first.
        if let Ok(buffer) = handles::take::<PinnedBuffer>(handle, |_| Ok(())) {
            result = result.and(buffer.release());
        }
    }
    result.and(gdr.close())
}

/// The driver behind `g`, for work that other users of `g` need not wait for.
pub(super) fn gdr(g: usize) -> Result<Gdr> {
    handles::with(g, |open: &mut OpenGdr, _| Ok(open.gdr.clone()))
}

/// Pins a buffer and gives it a handle.
pub(super) fn pin(
    g: usize,
    address: u64,
    size: usize,
    flags: PinFlags,
    tokens: P2pTokens,
) -> Result<usize> {
    let pin = gdr(g)?.pin_with_tokens(address, size, flags, tokens)?;
    let handle = Table::enter()?.insert(PinnedBuffer {
        mapping: None,
        pin,
        owner: g,
    })?;
    let registered = handles::with(g, |open: &mut OpenGdr, _| Ok(open.pins.insert(handle)));
    if let Err(closed_meanwhile) = registered {
        drop(handles::take::<PinnedBuffer>(handle, |_| Ok(())));
        return Err(closed_meanwhile);
    }
    Ok(handle)
}

/// Unmaps a buffer where need be and unpins it. The handle is stale in any case.
pub(super) fn unpin(g: usize, handle: usize) -> Result<()> {
    gdr(g)?;
    let buffer = handles::take(handle, |buffer: &PinnedBuffer| buffer.check_owner(g))?;
    // A close of another thread may be first.
    let _ = handles::with(g, |open: &mut OpenGdr, _| Ok(open.pins.remove(&handle)));
    buffer.release()
}

/// Works on a buffer of `g`.
fn with_buffer<R>(
    g: usize,
    handle: usize,
    work: impl FnOnce(&mut PinnedBuffer, &Slot) -> Result<R>,
) -> Result<R> {
    gdr(g)?;
    handles::with(handle, |buffer: &mut PinnedBuffer, slot| {
        buffer.check_owner(g)?;
        work(buffer, slot)
    })
}

/// What is known of a buffer.
pub(super) fn info(g: usize, handle: usize) -> Result<Info> {
    with_buffer(g, handle, |buffer, _| buffer.pin.info())
}

/// Whether its memory was freed meanwhile.
pub(super) fn callback_flag(g: usize, handle: usize) -> Result<bool> {
    with_buffer(g, handle, |buffer, _| buffer.pin.callback_flag())
}

/// Maps a buffer and opens its copy path.
pub(super) fn map(g: usize, handle: usize, size: usize, flag: MapFlag) -> Result<*mut u8> {
    with_buffer(g, handle, |buffer, slot| {
        let mapping = buffer.pin.map(size, flag)?;
        let address = mapping.as_mut_ptr();
        slot.show_mapping(mapping.mapping_type());
        buffer.mapping = Some(mapping);
        Ok(address)
    })
}

/// Closes a buffer's copy path and unmaps what was mapped, whatever range the caller names: DPDK passes
/// the device address, others a size of their own.
pub(super) fn unmap(g: usize, handle: usize, va: usize, size: usize) -> Result<()> {
    with_buffer(g, handle, |buffer, slot| {
        let mapping = buffer.mapping.as_ref().ok_or(Error::NotMapped)?;
        let (address, len, kind) = (mapping.as_mut_ptr(), mapping.len(), mapping.mapping_type());
        let page = crate::process::page_size();
        if va != address.addr() || size.checked_next_multiple_of(page) != Some(len) {
            log::warning!(
                "gdr_unmap: asked for {va:#x}+{size:#x}, unmapping what gdr_map made: {address:p}+{len:#x}"
            );
        }
        slot.show_mapping(MappingType::None);
        buffer.unmap().inspect_err(|_| slot.show_mapping(kind))
    })
}
