//! Stream-ordered allocation, which is done at once; a free waits for its turn.
//!
//! Memory of a pool cannot be pinned unless the pool was created GPUDirect capable, which CUDA can
//! do since 13.3.

use super::state::{self, Allocation, Pool, PoolHandle, State, StreamHandle};
use super::work::{Turn, When};
use super::{buffer, vmm};
use crate::args::In;
use crate::error::{Error, Result, ensure};
use crate::gpus;
use gdremu_core::cuda::types::{ALLOCATION_PINNED, PoolProps};

/// The first CUDA version whose pools can be GPUDirect capable.
const RDMA_POOLS: u32 = 13030;

fn check_supported() -> Result {
    ensure(gpus::config().mempools, Error::NOT_SUPPORTED)
}

fn default_pool(state: &mut State, gpu: usize) -> PoolHandle {
    let State { pools, default_pools, .. } = state;
    *default_pools.entry(gpu).or_insert_with(|| pools.add(Pool { gpu, rdma: false }))
}

pub(super) fn cuDeviceGetDefaultMemPool(state: &mut State, device: i32) -> Result<PoolHandle> {
    let gpu = gpus::by_ordinal(device)?;
    check_supported()?;
    Ok(default_pool(state, gpu))
}

/// Pools that other processes import, or with a limit, are not emulated.
pub(super) fn cuMemPoolCreate(state: &mut State, props: In<PoolProps>) -> Result<PoolHandle> {
    check_supported()?;
    let props = props.get()?;
    let rdma = props.gpu_direct_rdma_capable != 0;
    let is_known = props.reserved == [0; 53] && (!rdma || gpus::config().cuda_version >= RDMA_POOLS);
    ensure(props.kind == ALLOCATION_PINNED && props.handle_types == 0 && is_known, Error::INVALID_VALUE)?;
    ensure(props.max_size == 0, Error::NOT_SUPPORTED)?;
    let gpu = vmm::gpu_at(props.location)?;
    Ok(state.pools.add(Pool { gpu, rdma }))
}

/// Memory of the pool stays valid until it is freed.
pub(super) fn cuMemPoolDestroy(state: &mut State, pool: PoolHandle) -> Result {
    ensure(state.default_pools.values().all(|&default| default != pool), Error::INVALID_VALUE)?;
    state.pools.remove(pool).map(drop)
}

pub(super) fn cuMemAllocAsync(size: usize, stream: StreamHandle) -> Result<u64> {
    let mut turn = Turn::of(stream)?;
    let pool = default_pool(&mut turn.state, turn.current.gpu);
    alloc(turn, size, pool)
}

pub(super) fn cuMemAllocFromPoolAsync(size: usize, pool: PoolHandle, stream: StreamHandle) -> Result<u64> {
    alloc(Turn::of(stream)?, size, pool)
}

fn alloc(mut turn: Turn, size: usize, handle: PoolHandle) -> Result<u64> {
    check_supported()?;
    turn.check_capture()?;
    let pool = turn.state.pools.get(handle)?;
    if size == 0 {
        return Ok(0);
    }
    let address = gpus::change(|memory| memory.alloc(pool.gpu, size as u64, pool.rdma))?;
    turn.state.allocations.insert(address, Allocation { context: None, pool: Some(handle), shared: None });
    Ok(address)
}

pub(super) fn cuMemFreeAsync(address: u64, stream: StreamHandle) -> Result {
    let turn = Turn::of(stream)?;
    check_supported()?;
    if address == 0 {
        return Ok(());
    }
    ensure(turn.state.allocations.contains_key(&address), Error::INVALID_VALUE)?;
    turn.submit(When::InOrder, move || buffer::free(&mut state::lock(), address))
}
