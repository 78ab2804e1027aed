//! Stream-ordered allocation, which is done at once; a free waits for its turn.
//!
//! Memory of a pool cannot be pinned unless the pool was created GPUDirect capable, which CUDA can
//! do since 13.3.

use super::state::{self, Allocation, Pool, PoolHandle, State, StreamHandle};
use super::work::{self, When};
use super::{buffer, vmm};
use crate::args::{In, Out, Untyped};
use crate::error::{Error, Result, ensure};
use crate::gpus;
use gdremu_core::cuda::types::{ALLOCATION_PINNED, PoolProps};

/// The first CUDA version whose pools can be GPUDirect capable.
const RDMA_POOLS: u32 = 13030;

/// # Errors
/// NOT_SUPPORTED on GPUs without pools.
fn check_supported() -> Result {
    ensure(gpus::config().mempools, Error::NOT_SUPPORTED)
}

/// A GPU, which must have pools.
pub(super) fn gpu(device: i32) -> Result<usize> {
    let gpu = gpus::by_ordinal(device)?;
    check_supported()?;
    Ok(gpu)
}

/// A pool by its handle.
pub(super) fn find(state: &mut State, pool: PoolHandle) -> Result<&mut Pool> {
    state.pools.get_mut(pool).ok_or(Error::INVALID_VALUE)
}

pub(super) fn default_pool(state: &mut State, gpu: usize) -> PoolHandle {
    match state.default_pools.get(&gpu) {
        Some(&pool) => pool,
        None => {
            let pool = state.pools.add(Pool::new(gpu, false));
            state.default_pools.insert(gpu, pool);
            pool
        }
    }
}

pub(super) fn current_pool(state: &mut State, gpu: usize) -> PoolHandle {
    state.current_pools.get(&gpu).copied().unwrap_or_else(|| default_pool(state, gpu))
}

pub(super) fn cuDeviceSetMemPool(state: &mut State, device: i32, pool: PoolHandle) -> Result {
    let gpu = self::gpu(device)?;
    state.pools.get(pool).filter(|pool| pool.gpu == gpu).ok_or(Error::INVALID_VALUE)?;
    state.current_pools.insert(gpu, pool);
    Ok(())
}

pub(super) fn create(state: &mut State, props: In<PoolProps>) -> Result<PoolHandle> {
    check_supported()?;
    let props = props.get()?;
    ensure(props.kind == ALLOCATION_PINNED && props.handle_types == 0, Error::INVALID_VALUE)?;
    let gpu = vmm::gpu_at(props.location)?;
    let rdma = gpus::config().cuda_version >= RDMA_POOLS && props.gpu_direct_rdma_capable != 0;
    Ok(state.pools.add(Pool::new(gpu, rdma)))
}

/// Memory of the pool stays valid until it is freed.
pub(super) fn cuMemPoolDestroy(state: &mut State, pool: PoolHandle) -> Result {
    ensure(!state.default_pools.values().any(|&default| default == pool), Error::INVALID_VALUE)?;
    state.pools.remove(pool).ok_or(Error::INVALID_VALUE)?;
    state.current_pools.retain(|_, current| *current != pool);
    Ok(())
}

pub(super) fn get_attribute(pool: &Pool, attribute: u32, value: Untyped) -> Result {
    match attribute {
        1..=3 => value.of().set(pool.reuse[attribute as usize - 1]),
        4 => value.of().set(pool.release_threshold),
        5 | 7 => value.of().set(pool.used), // Nothing is reserved beyond what is used.
        6 | 8 => value.of().set(pool.used_high),
        _ => Err(Error::INVALID_VALUE),
    }
}

pub(super) fn set_attribute(pool: &mut Pool, attribute: u32, value: In<u8>) -> Result {
    match attribute {
        1..=3 => pool.reuse[attribute as usize - 1] = value.of().get()?,
        4 => pool.release_threshold = value.of().get()?,
        6 | 8 if value.of::<u64>().get()? == 0 => pool.used_high = pool.used,
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

pub(super) fn alloc(
    state: &mut State,
    address: Out<u64>,
    size: usize,
    handle: PoolHandle,
    stream: StreamHandle,
) -> Result {
    check_supported()?;
    address.check()?;
    state.check_stream(stream)?;
    let pool = find(state, handle)?;
    let va = gpus::change(|memory| memory.alloc(pool.gpu, size as u64, pool.rdma))?;
    pool.used += size as u64;
    pool.used_high = pool.used_high.max(pool.used);
    state
        .allocations
        .insert(va, Allocation { context: None, pool: Some(handle), sync_memops: false });
    address.set(va)
}

pub(super) fn cuMemFreeAsync(address: u64, stream: StreamHandle) -> Result {
    let state = state::lock();
    let current = state.current()?;
    check_supported()?;
    state.check_stream(stream)?;
    ensure(state.allocations.contains_key(&address), Error::INVALID_VALUE)?;
    work::submit(state, current, stream, When::InOrder, move || {
        buffer::free(&mut state::lock(), address)
    })
}
