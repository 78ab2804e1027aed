//! Several GPUs: any one can reach the memory of any other. Writes of third parties to GPU memory.

use super::state::{ContextHandle, Current, State};
use crate::args::Out;
use crate::error::{Error, Result};
use crate::gpus;

pub(super) fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> Result {
    let other = gpus::by_ordinal(device)? != gpus::by_ordinal(peer)?;
    can.set(i32::from(other))
}

pub(super) fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: i32,
    source: i32,
    destination: i32,
) -> Result {
    value.check()?;
    if gpus::by_ordinal(source)? == gpus::by_ordinal(destination)? {
        return Err(Error::INVALID_DEVICE);
    }
    value.set(match attribute {
        // PERFORMANCE_RANK, NATIVE_ATOMIC_SUPPORTED, CUDA_ARRAY_ACCESS_SUPPORTED
        1 | 3 | 4 => 0,
        2 => 1, // ACCESS_SUPPORTED
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(super) fn cuCtxEnablePeerAccess(
    state: &mut State,
    current: Current,
    peer: ContextHandle,
    flags: u32,
) -> Result {
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let peer_gpu = state.contexts.get(peer).ok_or(Error::INVALID_CONTEXT)?.gpu;
    if peer_gpu == current.gpu {
        return Err(Error::INVALID_DEVICE);
    }
    let context = state.contexts.get_mut(current.context).ok_or(Error::INVALID_CONTEXT)?;
    if context.peers.insert(peer) { Ok(()) } else { Err(Error::PEER_ACCESS_ALREADY_ENABLED) }
}

pub(super) fn cuCtxDisablePeerAccess(
    state: &mut State,
    current: Current,
    peer: ContextHandle,
) -> Result {
    state.contexts.get(peer).ok_or(Error::INVALID_CONTEXT)?;
    let context = state.contexts.get_mut(current.context).ok_or(Error::INVALID_CONTEXT)?;
    if context.peers.remove(&peer) { Ok(()) } else { Err(Error::PEER_ACCESS_NOT_ENABLED) }
}

/// The CPU's writes through a mapping and the GPU's view of them are the same memory here: nothing
/// is in flight.
pub(super) fn cuFlushGPUDirectRDMAWrites(
    _: &mut State,
    _: Current,
    target: u32,
    scope: u32,
) -> Result {
    match (target, scope) {
        (0, 100 | 200) => Ok(()),
        _ => Err(Error::INVALID_VALUE),
    }
}
