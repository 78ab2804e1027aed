//! Access to the emulated GPUs, which the CUDA stand-in shares with the emulated driver.

use std::os::fd::BorrowedFd;

use gdremu_core::config::GpuConfig;
use gdremu_core::gpu::memory::{self, Memory, PageTableId};
use gdremu_core::gpu::{HostProvider, Shared};

use crate::address_space;
use crate::error::{Error, Result};
use crate::state as process;

/// The configuration of the GPUs.
pub(crate) fn config() -> GpuConfig {
    process::lock().config.gpu.clone()
}

/// The error that this call of the function must fail with (`--fault`).
pub(crate) fn fault(function: &str) -> Option<Error> {
    process::lock().faults.take(function).map(|fault| Error(fault.0))
}

/// Uses the GPUs.
pub(crate) fn with<T>(call: impl FnOnce(&mut HostProvider) -> T) -> T {
    call(process::lock().gpu.host())
}

/// Changes the allocation metadata of the GPUs' memory.
pub(crate) fn change<T>(
    mut call: impl FnMut(&mut Memory) -> std::result::Result<T, memory::Error>,
) -> Result<T> {
    let mut process = process::lock();
    let result = match process.gpu.host().change(&mut call) {
        Err(memory::Error::NoMemory) => {
            process.reap_all(); // This frees the memory of closed descriptors.
            process.gpu.host().change(call)
        }
        result => result,
    };
    address_space::changed();
    Ok(result?)
}

/// Maps a buffer of another process.
pub(crate) fn import(shared: &Shared, file: BorrowedFd<'_>) -> Result<u64> {
    let imported = process::lock().gpu.host().import(shared, file);
    address_space::changed();
    Ok(imported?)
}

/// Free bytes of a GPU.
pub(crate) fn free_bytes(gpu: usize) -> u64 {
    let mut process = process::lock();
    process.reap_all();
    process.gpu.host().memory().free_bytes(gpu)
}

/// Removes memory from the program, and revokes its pins before any other thread can use the GPUs.
pub(crate) fn take_away(
    call: impl FnMut(&mut Memory) -> std::result::Result<Vec<PageTableId>, memory::Error>,
) -> Result {
    let mut process = process::lock();
    let revoked = process.gpu.host().change(call)?;
    address_space::changed();
    process.revoke(&revoked);
    Ok(())
}

/// The GPU that a CUdevice names.
///
/// # Errors
/// INVALID_DEVICE.
pub(crate) fn by_ordinal(device: i32) -> Result<usize> {
    usize::try_from(device).ok().filter(|&gpu| gpu < count()).ok_or(Error::INVALID_DEVICE)
}

/// The number of GPUs.
pub(crate) fn count() -> usize {
    config().gpus as usize
}
