//! Stream-ordered allocation from the GPU's default pool, which is done at once; a free waits for its turn.
//!
//! Memory of a pool cannot be pinned.
#![forbid(unsafe_code)]

use super::buffer;
use super::state::{self, Allocation, StreamHandle};
use super::work::{Turn, When};
use crate::error::{Error, Result, ensure};
use crate::gpus;

/// The handle of the pool of GPU 0; those of the others follow.
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
    turn.submit(When::InOrder, move || buffer::free(&mut state::lock(), address))
}
