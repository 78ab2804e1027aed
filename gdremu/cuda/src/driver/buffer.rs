//! Device memory: cuMemAlloc, cuMemFree, cuMemAllocAsync, cuMemFreeAsync, and queries.
#![forbid(unsafe_code)]

use super::state::{self, Allocation, ContextHandle, Current, Kind, State, StreamHandle};
use super::work::{self, Turn, When};
use super::{host, ipc};
use crate::error::{Error, Result, ensure, valid};
use crate::gpus;

pub(super) fn cuMemAlloc_v2(state: &mut State, current: Current, size: usize) -> Result<u64> {
    let address = gpus::change(|memory| memory.alloc(current.gpu, size as u64, true))?;
    let allocation = Allocation { context: Some(current.context), pool: None, shared: None };
    state.allocations.insert(address, allocation);
    Ok(address)
}

pub(super) fn cuMemFree_v2(address: u64) -> Result {
    if address == 0 {
        return Ok(());
    }
    let state = state::lock();
    if let Some(allocation) = state.allocations.get(&address) {
        let owner = allocation.context;
        return free(&mut *work::finish(state, owner)?, address);
    }
    host::release(state, address as usize, Kind::Managed)
}

/// Frees a buffer, whether or not it is from a memory pool.
pub(super) fn free(state: &mut State, address: u64) -> Result {
    let allocation = valid(state.allocations.get(&address))?;
    if let Some(shared) = &allocation.shared {
        ipc::mark(shared, false).map_err(|_| Error::OPERATING_SYSTEM)?;
    }
    gpus::take_away(|memory| memory.free(address))?;
    state.allocations.remove(&address);
    Ok(())
}

pub(super) fn free_all_of(state: &mut State, context: ContextHandle) -> Result {
    let addresses: Vec<u64> = state.allocations.keys().copied().collect();
    for address in addresses {
        if state.allocations[&address].context == Some(context) {
            free(state, address)?;
        }
    }
    Ok(())
}

/// Returns the start and length of the buffer, or of the range of host memory, that contains an address.
pub(super) fn range(state: &State, address: u64) -> Result<(u64, usize)> {
    if let Some(place) = gpus::place(address) {
        return Ok((place.base, place.len as usize));
    }
    match host::find(state, address as usize) {
        Some(range) => Ok((range.start as u64, range.len)),
        None => Err(Error::NOT_FOUND),
    }
}

// ---- Memory from the default pool. gdrdrv cannot pin it, and frees wait for the stream's earlier work. ----

/// The handle of the default pool of GPU 0. The handles for the other GPUs are the numbers after it.
const POOL: usize = 0xC4 << 40;

pub(super) fn cuMemAllocAsync(size: usize, stream: StreamHandle) -> Result<u64> {
    let mut turn = Turn::of(stream)?;
    ensure(gpus::config().mempools, Error::NOT_SUPPORTED)?;
    turn.check_capture()?;
    if size == 0 {
        return Ok(0);
    }
    let gpu = turn.current.gpu;
    let address = gpus::change(|memory| memory.alloc(gpu, size as u64, false))?;
    turn.state.allocations.insert(address, Allocation { context: None, pool: Some(POOL + gpu), shared: None });
    Ok(address)
}

pub(super) fn cuMemFreeAsync(address: u64, stream: StreamHandle) -> Result {
    let turn = Turn::of(stream)?;
    ensure(gpus::config().mempools, Error::NOT_SUPPORTED)?;
    if address == 0 {
        return Ok(());
    }
    ensure(turn.state.allocations.contains_key(&address), Error::INVALID_VALUE)?;
    turn.submit(When::InOrder, move || free(&mut state::lock(), address))
}
