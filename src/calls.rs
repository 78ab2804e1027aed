//! The work behind the C functions, on a handle's open driver or pin. C programs may call them in any order.

use gdrcopy_core::sys::fork::page_size;
use gdrcopy_core::types::{Info, MapFlag, P2pTokens, PinFlags};
use gdrcopy_core::{RawGdr, RawMapping, stderr, variables};

use crate::error::{Error, Result};
use crate::handles::{self, Handle, Table};
use crate::objects::{GdrEntry, PinEntry};
use crate::origin;
use crate::slots::Slot;

/// Reads the environment variables, opens the driver, and returns a new handle for it.
pub(crate) fn open() -> Result<usize> {
    stderr::install();
    variables::warn_of_gone();
    let gdr = RawGdr::open(&variables::options())?;
    variables::select_routine();
    let allow_unaligned_map = variables::ALLOW_UNALIGNED_MAP.is_one();
    let slot = Table::enter()?.insert(GdrEntry { gdr, allow_unaligned_map })?;
    origin::log();
    Ok(slot.handle())
}

/// Releases all pins of `g`, then closes it. Goes on after errors, and returns the first one.
pub(crate) fn close(g: usize) -> Result<()> {
    if handles::close_inherited(g) {
        return Ok(());
    }
    let connection = Handle::find(g)?;
    let slot = connection.slot;
    let work = |open: &mut GdrEntry| {
        Table::of_live("g")?.check_pins_unused(slot)?;
        Ok(open.gdr.clone())
    };
    connection.end(work, |gdr| {
        let released = release_pins(g, slot);
        let closed = gdr.close();
        released?;
        Ok(closed?)
    })?
}

/// Releases all pins of `g`. The caller has marked the slot of `g` as ending, so that other threads cannot add pins.
fn release_pins(g: usize, slot: &Slot) -> Result<()> {
    let table = Table::of_live("g")?;
    let mut result = Ok(());
    while let Some(slot) = table.take_pin(slot) {
        // Another thread may have unpinned this pin in the meantime.
        let Ok(pin) = Handle::find(slot.handle()) else {
            continue;
        };
        let release = |pin: &mut PinEntry| {
            pin.check_gdr(g)?;
            Ok(pin.release(slot))
        };
        if let Ok(released) = pin.end(release, |released| released) {
            result = result.and(released);
        }
    }
    result
}

/// Returns a clone of the driver behind `g`. Other threads can use `g` while the caller works with the clone.
pub(crate) fn gdr(g: usize) -> Result<RawGdr> {
    Handle::find(g)?.with(|open: &mut GdrEntry| Ok(open.gdr.clone()))
}

/// Pins a buffer and gives it a handle.
///
/// # Safety
/// The contract of [`RawGdr::pin`]. The C caller is responsible for all writes to the memory.
pub(crate) unsafe fn pin(g: usize, address: u64, size: usize, flags: PinFlags, tokens: P2pTokens) -> Result<usize> {
    let connection = Handle::<GdrEntry>::find(g)?;
    let (gdr, allow_unaligned_map) = connection.with(|open| Ok((open.gdr.clone(), open.allow_unaligned_map)))?;
    // SAFETY: contract of this function.
    let pin = unsafe { gdr.pin(address, size, flags, tokens) }?;
    let pin = PinEntry { mapping: None, pin, gdr: g, allow_unaligned_map };
    // This fails, and drops the pin, if another thread has closed `g` since `g` was looked up.
    Ok(Table::of_live("g")?.insert(pin)?.handle())
}

/// Returns the pin with this handle. Fails if `g` or the handle is not live.
#[inline]
fn find_buffer(g: usize, handle: usize) -> Result<Handle<PinEntry>> {
    handles::check_gdr(g)?;
    Handle::find(handle)
}

/// Unmaps a buffer if it is mapped, and unpins it. If the driver refuses, the handle stays valid for another try.
pub(crate) fn unpin(g: usize, handle: usize) -> Result<()> {
    let buffer = find_buffer(g, handle)?;
    let slot = buffer.slot;
    let release = |buffer: &mut PinEntry| {
        buffer.check_gdr(g)?;
        buffer.release(slot)
    };
    buffer.end(release, |()| ())
}

/// Calls `work` with a buffer of `g` and its slot, the memory that the buffer's handle points to.
#[inline]
fn with_buffer<R>(g: usize, handle: usize, work: impl FnOnce(&mut PinEntry, &Slot) -> Result<R>) -> Result<R> {
    let found = find_buffer(g, handle)?;
    found.with(|buffer| {
        buffer.check_gdr(g)?;
        work(buffer, found.slot)
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

/// Maps a buffer. From then on, copies through the mapping succeed.
///
/// # Safety
/// The contract of [`RawPin::map`](gdrcopy_core::RawPin::map). Whole pages are mapped, and the C caller is responsible
/// for writes past the end of its buffer in the last page.
pub(crate) unsafe fn map(g: usize, handle: usize, size: usize, flag: MapFlag) -> Result<*mut u8> {
    with_buffer(g, handle, |buffer, slot| {
        let can_be_mapped = buffer.allow_unaligned_map || buffer.pin.starts_page();
        if !can_be_mapped && buffer.mapping.is_none() && size != 0 {
            return Err(Error::UnalignedMap { address: buffer.pin.address() });
        }
        // SAFETY: contract of this function.
        let mapping = unsafe { buffer.pin.map(size, flag) }?;
        let address = mapping.first_page();
        slot.show_mapping(Some(mapping.mapping_type()));
        buffer.mapping = Some(mapping);
        Ok(address)
    })
}

/// Unmaps a buffer's whole mapping, whatever `va` and `size` are, because DPDK passes the device address in `va`, and
/// other programs pass a `size` that differs from the mapping's. Copies through the mapping fail from then on.
pub(crate) fn unmap(g: usize, handle: usize, va: usize, size: usize) -> Result<()> {
    with_buffer(g, handle, |buffer, slot| {
        let Some(mapping) = &buffer.mapping else {
            return Err(Error::NotMapped);
        };
        let address = mapping.first_page();
        let mapped = mapping.len();
        if va != address.addr() || pages(size) != pages(mapped) {
            log::warn!("gdr_unmap: called for {va:#x}+{size:#x}, unmapping what gdr_map made: {address:p}+{mapped:#x}");
        }
        buffer.remove_mapping(slot, RawMapping::unmap)
    })
}

/// Returns the size rounded up to whole pages; `None` if that overflows.
fn pages(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(page_size())
}
