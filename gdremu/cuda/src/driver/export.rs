//! Descriptors for GPU memory, as dma-bufs of address ranges and shareable handles of physical
//! objects.
#![forbid(unsafe_code)]

use std::ffi::c_int;

use gdremu_core::errno::Errno;
use gdremu_core::gpu::page_size;
use gdremu_core::gpu::physical::ObjectId;

use crate::descriptors::Export;
use crate::error::{Error, Result, ensure};
use crate::gpus;
use crate::state as process;
use gdremu_core::cuda::types::HANDLE_POSIX_FD;

/// CUmemRangeHandleType.
const DMA_BUF_FD: u32 = 1;

/// CUmemRangeFlags: mapped through PCIe even if there is a coherent link.
const MAPPING_TYPE_PCIE: u64 = 1;

/// The first CUDA version with that flag.
const MAPPING_TYPE_PCIE_SINCE: u32 = 12080;

fn operating_system(_: Errno) -> Error {
    Error::OPERATING_SYSTEM
}

/// Exports a range of addresses, and returns its descriptor.
pub(super) fn range(address: u64, size: usize, kind: u32, flags: u64) -> Result<c_int> {
    let config = gpus::config();
    let valid = flags == 0 || flags == MAPPING_TYPE_PCIE && config.cuda_version >= MAPPING_TYPE_PCIE_SINCE;
    ensure(kind == DMA_BUF_FD && valid, Error::INVALID_VALUE)?;
    // A GPU that only has PCIe refuses the flag.
    ensure(flags == 0 || config.coherent, Error::NOT_SUPPORTED)?;
    let mut process = process::lock();
    let size = size as u64;
    let table = process.gpu.host().change(|memory| memory.export(address, size, page_size() as u64))?;
    if !config.exports_dmabufs(table.runs[0].gpu) {
        process.gpu.put_pages(table.id);
        return Err(Error::NOT_SUPPORTED);
    }
    process.export(Export::Range(table.id), size).map_err(operating_system)
}

/// Exports a physical object, and returns its descriptor.
pub(super) fn object(handle: u64, kind: u32, flags: u64) -> Result<c_int> {
    ensure(kind == HANDLE_POSIX_FD, Error::INVALID_VALUE)?;
    let id = ObjectId(handle);
    let mut process = process::lock();
    let object = process.gpu.host().memory().object(id)?;
    let len = object.len;
    ensure(flags == 0 && object.exportable, Error::INVALID_VALUE)?;
    process.gpu.host().change(|memory| memory.retain(id))?;
    process.export(Export::Object(id), len).map_err(operating_system)
}

/// Imports only objects that this process exported, because memory is not shared between
/// processes.
pub(super) fn import(shareable: usize, kind: u32) -> Result<u64> {
    ensure(kind == HANDLE_POSIX_FD, Error::INVALID_VALUE)?;
    let fd = c_int::try_from(shareable).map_err(|_| Error::INVALID_VALUE)?;
    let mut process = process::lock();
    let Some(Export::Object(id)) = process.exported(fd) else {
        return Err(Error::INVALID_VALUE);
    };
    process.gpu.host().change(|memory| memory.retain(id))?;
    Ok(id.0)
}
