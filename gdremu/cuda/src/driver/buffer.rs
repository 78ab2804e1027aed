//! cuMemAlloc, cuMemFree and queries about device memory.

use gdremu_core::gpu::physical::GPU_BYTES;

use super::state::{Allocation, ContextHandle, Current, Kind, State};
use super::work;
use super::{host, ipc};
use crate::args::Out;
use crate::error::{Error, Result};
use crate::gpus;

/// Rows of pitched memory start at multiples of this.
const PITCH: usize = 512;

pub(super) fn cuMemGetInfo_v2(
    _: &mut State,
    current: Current,
    free: Out<usize>,
    total: Out<usize>,
) -> Result {
    free.set(gpus::free_bytes(current.gpu) as usize)?;
    total.set(GPU_BYTES as usize)
}

pub(super) fn cuMemAlloc_v2(
    state: &mut State,
    current: Current,
    address: Out<u64>,
    size: usize,
) -> Result {
    address.check()?;
    address.set(alloc(state, current, size)?)
}

pub(super) fn cuMemAllocPitch_v2(
    state: &mut State,
    current: Current,
    address: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Result {
    address.check()?;
    pitch.check()?;
    if !matches!(element, 4 | 8 | 16) {
        return Err(Error::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH).ok_or(Error::INVALID_VALUE)?;
    let size = row.checked_mul(height).ok_or(Error::INVALID_VALUE)?;
    address.set(alloc(state, current, size)?)?;
    pitch.set(row)
}

/// Allocates a buffer that the context frees at its end.
pub(crate) fn alloc(state: &mut State, current: Current, size: usize) -> Result<u64> {
    let address = gpus::change(|memory| memory.alloc(current.gpu, size as u64, true))?;
    let allocation = Allocation { context: Some(current.context), pool: None, shared: None };
    state.allocations.insert(address, allocation);
    Ok(address)
}

pub(super) fn cuMemFree_v2(address: u64) -> Result {
    if address == 0 {
        return Ok(());
    }
    let owner = |state: &State| match state.allocations.get(&address) {
        Some(allocation) => Ok(allocation.context),
        None => host::owner(state, address as usize, Kind::Managed).map(Some),
    };
    work::freeing(owner, |state| {
        if state.allocations.contains_key(&address) {
            free(state, address)
        } else {
            host::free(state, address as usize, Kind::Managed)
        }
    })
}

/// Frees a buffer, from a pool or not.
///
/// # Errors
/// INVALID_VALUE if none starts there. OPERATING_SYSTEM if other processes cannot be informed.
pub(super) fn free(state: &mut State, address: u64) -> Result {
    let allocation = state.allocations.get(&address).ok_or(Error::INVALID_VALUE)?;
    if let Some(shared) = &allocation.shared {
        ipc::mark(shared, false).map_err(|_| Error::OPERATING_SYSTEM)?;
    }
    let len = gpus::with(|gpu| gpu.memory().place(address)).map_or(0, |place| place.len);
    gpus::take_away(|memory| memory.free(address))?;
    let allocation = state.allocations.remove(&address).ok_or(Error::INVALID_VALUE)?;
    if let Some(pool) = allocation.pool.and_then(|pool| state.pools.get_mut(pool)) {
        pool.used -= len;
    }
    Ok(())
}

/// Frees the buffers of a context that ends.
pub(super) fn free_all_of(state: &mut State, context: ContextHandle) -> Result {
    let owned = |(&address, allocation): (&u64, &Allocation)| {
        (allocation.context == Some(context)).then_some(address)
    };
    let addresses: Vec<u64> = state.allocations.iter().filter_map(owned).collect();
    addresses.into_iter().try_for_each(|address| free(state, address))
}

pub(super) fn cuMemGetAddressRange_v2(
    state: &mut State,
    _: Current,
    base: Out<u64>,
    size: Out<usize>,
    address: u64,
) -> Result {
    let (start, len) = match gpus::with(|gpu| gpu.memory().place(address)) {
        Some(place) => (place.base, place.len),
        None => {
            let (start, range) = host::find(state, address as usize).ok_or(Error::NOT_FOUND)?;
            (start as u64, range.len as u64)
        }
    };
    base.set_if_wanted(start);
    size.set_if_wanted(len as usize);
    Ok(())
}
