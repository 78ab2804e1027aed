//! Stream-ordered allocation, which is done at once; a free waits for its turn.
//!
//! Memory of a pool cannot be pinned unless the pool was created GPUDirect capable, which CUDA can
//! do since 13.3.

use gdremu_core::gpu::memory::Access;

use super::state::{self, Allocation, Current, Pool, PoolHandle, State, StreamHandle};
use super::work::{self, When};
use super::{buffer, capture, vmm};
use crate::args::{In, Out, Untyped};
use crate::error::{Error, Result, ensure};
use crate::gpus;
use gdremu_core::cuda::types::{ALLOCATION_PINNED, AccessDesc, PoolProps};

/// Limits of pools are multiples of this.
const MAX_SIZE_UNIT: u64 = 32 << 20;

/// The first CUDA version whose pools can be GPUDirect capable.
const RDMA_POOLS: u32 = 13030;

fn check_supported() -> Result {
    ensure(gpus::config().mempools, Error::NOT_SUPPORTED)
}

/// A GPU, which must have pools.
pub(super) fn gpu(device: i32) -> Result<usize> {
    let gpu = gpus::by_ordinal(device)?;
    check_supported()?;
    Ok(gpu)
}

pub(super) fn default_pool(state: &mut State, gpu: usize) -> PoolHandle {
    let State { pools, default_pools, .. } = state;
    *default_pools.entry(gpu).or_insert_with(|| pools.add(Pool::new(gpu, false, u64::MAX)))
}

pub(super) fn current_pool(state: &mut State, gpu: usize) -> PoolHandle {
    state.current_pools.get(&gpu).copied().unwrap_or_else(|| default_pool(state, gpu))
}

pub(super) fn cuDeviceSetMemPool(state: &mut State, device: i32, pool: PoolHandle) -> Result {
    let gpu = self::gpu(device)?;
    ensure(state.pools.get(pool)?.gpu == gpu, Error::INVALID_VALUE)?;
    state.current_pools.insert(gpu, pool);
    Ok(())
}

pub(super) fn create(state: &mut State, props: In<PoolProps>) -> Result<PoolHandle> {
    check_supported()?;
    let props = props.get()?;
    let rdma = props.gpu_direct_rdma_capable != 0;
    let unknown = props.reserved.iter().any(|&byte| byte != 0) || rdma && gpus::config().cuda_version < RDMA_POOLS;
    ensure(props.kind == ALLOCATION_PINNED && props.handle_types == 0 && !unknown, Error::INVALID_VALUE)?;
    let gpu = vmm::gpu_at(props.location)?;
    let max_size = match props.max_size as u64 {
        0 => u64::MAX,
        size => size.checked_next_multiple_of(MAX_SIZE_UNIT).unwrap_or(u64::MAX),
    };
    Ok(state.pools.add(Pool::new(gpu, rdma, max_size)))
}

/// Memory of the pool stays valid until it is freed.
pub(super) fn cuMemPoolDestroy(state: &mut State, pool: PoolHandle) -> Result {
    ensure(!state.default_pools.values().any(|&default| default == pool), Error::INVALID_VALUE)?;
    state.pools.remove(pool)?;
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

/// Sets which other GPUs may access the memory; the pool's own always may.
pub(super) fn set_access(pool: &mut Pool, wanted: In<AccessDesc>, count: usize) -> Result {
    (0..count).try_for_each(|index| {
        let AccessDesc { location, flags } = wanted.at(index)?;
        let gpu = vmm::gpu_at(location)?;
        match vmm::access(flags)? {
            Access::None if gpu == pool.gpu => return Err(Error::INVALID_DEVICE),
            Access::None => pool.peers.remove(&gpu),
            Access::Read => return Err(Error::NOT_SUPPORTED),
            Access::ReadWrite => gpu != pool.gpu && pool.peers.insert(gpu),
        };
        Ok(())
    })
}

pub(super) fn cuMemAllocFromPoolAsync(
    state: &mut State,
    current: Current,
    address: Out<u64>,
    size: usize,
    handle: PoolHandle,
    stream: StreamHandle,
) -> Result {
    check_supported()?;
    address.check()?;
    state.check_stream(stream)?;
    capture::check_work(state, current, stream)?;
    let pool = state.pools.get_mut(handle)?;
    if size == 0 {
        return address.set(0);
    }
    ensure(pool.max_size - pool.used >= size as u64, Error::OUT_OF_MEMORY)?;
    let va = gpus::change(|memory| memory.alloc(pool.gpu, size as u64, pool.rdma))?;
    pool.used += size as u64;
    pool.used_high = pool.used_high.max(pool.used);
    state.allocations.insert(va, Allocation { context: None, pool: Some(handle), shared: None });
    address.set(va)
}

pub(super) fn cuMemFreeAsync(address: u64, stream: StreamHandle) -> Result {
    let state = state::lock();
    let current = state.current()?;
    check_supported()?;
    state.check_stream(stream)?;
    if address == 0 {
        return Ok(());
    }
    ensure(state.allocations.contains_key(&address), Error::INVALID_VALUE)?;
    work::submit(state, current, stream, When::InOrder, move || buffer::free(&mut state::lock(), address))
}
