//! The effect of each C function on the objects that its handles stand for, in any order of calls.
use std::collections::BTreeSet;

use gdrcopy_core::sys::fork::page_size;
use gdrcopy_core::types::{Attribute, Info, MapFlag, P2pTokens, PinFlags};
use gdrcopy_core::{RawGdr, stderr, variables};

use crate::error::{Error, Result};
use crate::handles::{self, Table};
use crate::objects::{GdrEntry, PinEntry};
use crate::settings;
use crate::slots::Slot;

/// Reads the environment variables, opens the driver and gives it a handle.
pub(crate) fn open() -> Result<usize> {
    stderr::set_level(variables::log_level());
    variables::warn_of_gone();
    let gdr = RawGdr::open(&settings::options())?;
    variables::select_routine();
    let handle = Table::enter()?.insert(GdrEntry {
        gdr,
        pins: BTreeSet::new(),
        allow_unaligned_map: variables::ALLOW_UNALIGNED_MAP.is_one(),
    })?;
    Ok(handle)
}

/// Releases all pins of `g`, then closes it. Goes on after errors; the first one counts.
pub(crate) fn close(g: usize) -> Result<()> {
    if handles::close_inherited(g) {
        return Ok(());
    }
    let end = |GdrEntry { gdr, pins, .. }: GdrEntry| {
        let mut result = Ok(());
        for handle in pins {
            // An unpin of another thread may be first.
            if let Ok(released) = handles::end(handle, |_, _| Ok(()), |mut pin: PinEntry| pin.release()) {
                result = result.and(released);
            }
        }
        result.and(gdr.close().map_err(Error::from))
    };
    handles::end(g, |_, _| Ok(()), end)?
}

/// The driver behind `g`, for work that other users of `g` need not wait for.
pub(crate) fn gdr(g: usize) -> Result<RawGdr> {
    handles::with(g, |open: &mut GdrEntry, _| Ok(open.gdr.clone()))
}

/// Pins a buffer and gives it a handle.
///
/// # Safety
/// The contract of [`RawGdr::pin`]. The C caller accounts for what is written to the memory.
pub(crate) unsafe fn pin(g: usize, address: u64, size: usize, flags: PinFlags, tokens: P2pTokens) -> Result<usize> {
    // SAFETY: contract of this function.
    let pin = unsafe { gdr(g)?.pin(address, size, flags, tokens) }?;
    let handle = Table::enter()?.insert(PinEntry { mapping: None, pin, gdr: g, mapped_size: 0 })?;
    let registered = handles::with(g, |open: &mut GdrEntry, _| Ok(open.pins.insert(handle)));
    if let Err(closed) = registered {
        // Another thread has closed `g` in the meantime.
        let _ = handles::end::<PinEntry, _>(handle, |_, _| Ok(()), drop);
        return Err(closed);
    }
    Ok(handle)
}

/// The value of an attribute.
pub(crate) fn attribute(g: usize, attribute: Attribute) -> Result<i32> {
    Ok(gdr(g)?.attribute(attribute)?)
}

/// Unmaps a buffer if it is mapped, and unpins it. If the driver refuses, the handle stays valid, so that
/// the caller can try again.
pub(crate) fn unpin(g: usize, handle: usize) -> Result<()> {
    gdr(g)?;
    let release = |buffer: &mut PinEntry, slot: &Slot| {
        buffer.check_gdr(g)?;
        slot.show_mapping(None);
        let result = buffer.release();
        // If the mapping could not be removed, it is still usable.
        slot.show_mapping(buffer.mapping.as_ref().map(|mapping| mapping.mapping_type()));
        result
    };
    handles::end(handle, release, drop)?;
    // A close of another thread may be first.
    let _ = handles::with(g, |open: &mut GdrEntry, _| Ok(open.pins.remove(&handle)));
    Ok(())
}

/// Works on a buffer of `g`.
fn with_buffer<R>(g: usize, handle: usize, work: impl FnOnce(&mut PinEntry, &Slot) -> Result<R>) -> Result<R> {
    gdr(g)?;
    handles::with(handle, |buffer: &mut PinEntry, slot| {
        buffer.check_gdr(g)?;
        work(buffer, slot)
    })
}

/// Describes a buffer.
pub(crate) fn info(g: usize, handle: usize) -> Result<Info> {
    with_buffer(g, handle, |buffer, _| Ok(buffer.pin.info()?))
}

/// Returns whether the memory of a buffer has been freed.
pub(crate) fn callback_flag(g: usize, handle: usize) -> Result<bool> {
    with_buffer(g, handle, |buffer, _| Ok(buffer.pin.callback_flag()?))
}

/// Maps a buffer and opens its copy path.
///
/// # Safety
/// The contract of [`RawPin::map`](gdrcopy_core::RawPin::map). The C caller accounts for writes to the rest of the last page.
pub(crate) unsafe fn map(g: usize, handle: usize, size: usize, flag: MapFlag) -> Result<*mut u8> {
    let allow_unaligned = handles::with(g, |open: &mut GdrEntry, _| Ok(open.allow_unaligned_map))?;
    with_buffer(g, handle, |buffer, slot| {
        if !(allow_unaligned || buffer.pin.starts_page()) && buffer.mapping.is_none() && size != 0 {
            return Err(Error::UnalignedMap { address: buffer.pin.address() });
        }
        // SAFETY: contract of this function.
        let mapping = unsafe { buffer.pin.map(size, flag) }?;
        let address = mapping.first_page();
        slot.show_mapping(Some(mapping.mapping_type()));
        buffer.mapping = Some(mapping);
        buffer.mapped_size = size;
        Ok(address)
    })
}

/// Closes a buffer's copy path and unmaps what was mapped, whatever range the caller passes. DPDK passes
/// the device address, other programs another size.
pub(crate) fn unmap(g: usize, handle: usize, va: usize, size: usize) -> Result<()> {
    with_buffer(g, handle, |buffer, slot| {
        let mapping = buffer.mapping.as_ref().ok_or(Error::NotMapped)?;
        let (address, mapping_type) = (mapping.first_page(), mapping.mapping_type());
        let mapped = buffer.mapped_size;
        let pages = |size: usize| size.checked_next_multiple_of(page_size());
        if va != address.addr() || pages(size) != pages(mapped) {
            log::warn!("gdr_unmap: called for {va:#x}+{size:#x}, unmapping what gdr_map made: {address:p}+{mapped:#x}");
        }
        slot.show_mapping(None);
        buffer.unmap().inspect_err(|_| slot.show_mapping(Some(mapping_type)))
    })
}
