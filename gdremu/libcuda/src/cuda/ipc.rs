//! Memory for other processes: handles can be created, but not opened. Emulated GPU memory belongs to
//! one process, as between containers that share nothing.
#![forbid(unsafe_code)]

use super::args::{In, Out};
use super::entry::{in_context, with_state};
use super::error::{Error, Result};
use super::gpus;
use super::state::Allocation;
use super::types::{IpcHandle, PoolExport};

/// Whether cuIpcGetMemHandle accepts it: memory of cuMemAlloc.
pub(super) fn is_capable(allocation: Option<&Allocation>) -> bool {
    allocation.is_some_and(|allocation| allocation.pool.is_none())
}

pub(super) extern "C" fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) -> i32 {
    in_context("cuIpcGetMemHandle", |state, _| {
        handle.check()?;
        let place = gpus::with(|gpu| gpu.memory().place(address)).ok_or(Error::INVALID_VALUE)?;
        if !is_capable(state.allocations.get(&place.base)) {
            return Err(Error::INVALID_VALUE);
        }
        handle.set(IpcHandle {
            process: std::process::id().into(),
            base: place.base,
            len: place.len,
            id: place.id,
            unused: [0; 4],
        })
    })
}

pub(super) extern "C" fn cuIpcOpenMemHandle_v2(
    address: Out<u64>,
    handle: IpcHandle,
    flags: u32,
) -> i32 {
    /// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
    const LAZY_PEER_ACCESS: u32 = 1;
    in_context("cuIpcOpenMemHandle", |_, _| {
        address.check()?;
        if flags != LAZY_PEER_ACCESS || handle.process == 0 {
            Err(Error::INVALID_VALUE)
        } else if handle.process == u64::from(std::process::id()) {
            Err(Error::INVALID_CONTEXT) // As with NVIDIA's driver in the exporting process.
        } else {
            Err(Error::MAP_FAILED)
        }
    })
}

pub(super) extern "C" fn cuIpcCloseMemHandle(_address: u64) -> i32 {
    in_context("cuIpcCloseMemHandle", |_, _| Err(Error::INVALID_VALUE)) // There is no open handle.
}

/// For functions of shareable pools. There are none: cuMemPoolCreate refuses, as
/// CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES says.
fn not_shared(name: &str) -> i32 {
    with_state(name, |_| -> Result { Err(Error::INVALID_VALUE) })
}

pub(super) extern "C" fn cuMemPoolExportToShareableHandle(
    _handle: Out<u8>,
    _pool: usize,
    _kind: u32,
    _flags: u64,
) -> i32 {
    not_shared("cuMemPoolExportToShareableHandle")
}

pub(super) extern "C" fn cuMemPoolImportFromShareableHandle(
    _pool: Out<usize>,
    _handle: usize,
    _kind: u32,
    _flags: u64,
) -> i32 {
    not_shared("cuMemPoolImportFromShareableHandle")
}

pub(super) extern "C" fn cuMemPoolExportPointer(_export: Out<PoolExport>, _address: u64) -> i32 {
    not_shared("cuMemPoolExportPointer")
}

pub(super) extern "C" fn cuMemPoolImportPointer(
    _address: Out<u64>,
    _pool: usize,
    _export: In<PoolExport>,
) -> i32 {
    not_shared("cuMemPoolImportPointer")
}
