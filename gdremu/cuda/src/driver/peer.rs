//! Several GPUs: any one can reach the memory of any other. Writes of third parties to GPU memory.

use super::entry::{in_context, initialized};
use super::state::ContextHandle;
use crate::args::Out;
use crate::error::Error;
use crate::gpus;

pub(crate) extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> i32 {
    initialized("cuDeviceCanAccessPeer", || {
        let other = gpus::by_ordinal(device)? != gpus::by_ordinal(peer)?;
        can.set(i32::from(other))
    })
}

pub(crate) extern "C" fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: i32,
    source: i32,
    destination: i32,
) -> i32 {
    initialized("cuDeviceGetP2PAttribute", || {
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
    })
}

pub(crate) extern "C" fn cuCtxEnablePeerAccess(peer: ContextHandle, flags: u32) -> i32 {
    in_context("cuCtxEnablePeerAccess", |state, current| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let peer_gpu = state.contexts.get(peer).ok_or(Error::INVALID_CONTEXT)?.gpu;
        if peer_gpu == current.gpu {
            return Err(Error::INVALID_DEVICE);
        }
        let context = state
            .contexts
            .get_mut(current.context)
            .ok_or(Error::INVALID_CONTEXT)?;
        if context.peers.insert(peer) {
            Ok(())
        } else {
            Err(Error::PEER_ACCESS_ALREADY_ENABLED)
        }
    })
}

pub(crate) extern "C" fn cuCtxDisablePeerAccess(peer: ContextHandle) -> i32 {
    in_context("cuCtxDisablePeerAccess", |state, current| {
        state.contexts.get(peer).ok_or(Error::INVALID_CONTEXT)?;
        let context = state
            .contexts
            .get_mut(current.context)
            .ok_or(Error::INVALID_CONTEXT)?;
        if context.peers.remove(&peer) {
            Ok(())
        } else {
            Err(Error::PEER_ACCESS_NOT_ENABLED)
        }
    })
}

/// The CPU's writes through a mapping and the GPU's view of them are the same memory here: nothing
/// is in flight.
pub(crate) extern "C" fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) -> i32 {
    in_context("cuFlushGPUDirectRDMAWrites", |_, _| match (target, scope) {
        (0, 100 | 200) => Ok(()),
        _ => Err(Error::INVALID_VALUE),
    })
}
