//! Several GPUs, where any one can reach the memory of any other. Writes of third parties to GPU
//! memory.

use super::state::{ContextHandle, Current, State};
use crate::error::{Error, Result, ensure};
use crate::gpus;

/// An attribute of the link from one GPU to another.
pub(super) fn attribute(attribute: i32, source: i32, destination: i32) -> Result<i32> {
    ensure(gpus::by_ordinal(source)? != gpus::by_ordinal(destination)?, Error::INVALID_DEVICE)?;
    Ok(match attribute {
        // PERFORMANCE_RANK, NATIVE_ATOMIC_SUPPORTED, CUDA_ARRAY_ACCESS_SUPPORTED
        1 | 3 | 4 => 0,
        2 => 1, // ACCESS_SUPPORTED
        _ => return Err(Error::INVALID_VALUE),
    })
}

pub(super) fn cuCtxEnablePeerAccess(state: &mut State, current: Current, peer: ContextHandle, flags: u32) -> Result {
    ensure(flags == 0, Error::INVALID_VALUE)?;
    let peer_gpu = state.contexts.get(peer)?.gpu;
    ensure(peer_gpu != current.gpu, Error::INVALID_DEVICE)?;
    let context = state.contexts.get_mut(current.context)?;
    ensure(context.peers.insert(peer), Error::PEER_ACCESS_ALREADY_ENABLED)
}

pub(super) fn cuCtxDisablePeerAccess(state: &mut State, current: Current, peer: ContextHandle) -> Result {
    state.contexts.get(peer)?;
    let context = state.contexts.get_mut(current.context)?;
    ensure(context.peers.remove(&peer), Error::PEER_ACCESS_NOT_ENABLED)
}
