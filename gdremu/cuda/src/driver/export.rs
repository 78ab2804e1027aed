//! Exports ranges of GPU memory as dma-bufs.
#![forbid(unsafe_code)]

use std::ffi::c_int;

use gdremu_core::gpu::page_size;

use crate::error::{Error, Result, ensure};
use crate::gpus;
use crate::state as process;

/// A CUmemRangeHandleType: the handle is the descriptor of a dma-buf.
const DMA_BUF_FD: u32 = 1;

/// A CUmemRangeFlags: the dma-buf is mapped through PCIe even if there is a coherent link.
const MAPPING_TYPE_PCIE: u64 = 1;

const MAPPING_TYPE_PCIE_SINCE: u32 = 12080;

pub(super) fn range(address: u64, size: usize, kind: u32, flags: u64) -> Result<c_int> {
    let config = gpus::config();
    let valid = flags == 0 || flags == MAPPING_TYPE_PCIE && config.cuda_version >= MAPPING_TYPE_PCIE_SINCE;
    ensure(kind == DMA_BUF_FD && valid, Error::INVALID_VALUE)?;
    // A GPU without a coherent link refuses MAPPING_TYPE_PCIE.
    ensure(flags == 0 || config.coherent, Error::NOT_SUPPORTED)?;
    let mut process = process::lock();
    let size = size as u64;
    let table = process.gpu.host().change(|memory| memory.export(address, size, page_size() as u64))?;
    if !config.exports_dmabufs(table.runs[0].gpu) {
        process.gpu.put_pages(table.id);
        return Err(Error::NOT_SUPPORTED);
    }
    process.export(table.id, size).map_err(|_| Error::OPERATING_SYSTEM)
}
