//! The settings of libgdrapi's environment variables.
#![forbid(unsafe_code)]

use gdrcopy_core::copy;
use gdrcopy_core::options::{Backend, Options};
use gdrcopy_core::variables::{self, Variable};

/// The settings for opening the driver. `GDRCOPY_USE_DMABUF_MMAP=1` asks for dma-bufs even if gdrdrv is
/// there, `GDRCOPY_FORCE_PCIE_COMPAT=1` lets an ordinary pin satisfy `FORCE_PCIE`,
/// `GDRCOPY_PARK=1` closes the device file while nothing is pinned.
pub(crate) fn options() -> Options {
    let backend = match variables::USE_DMABUF_MMAP.is_one() {
        true => Backend::DmaBuf,
        false => Backend::Auto,
    };
    let force_pcie_compat = variables::FORCE_PCIE_COMPAT.is_one();
    Options { backend, device_path: None, force_pcie_compat, park: variables::PARK.is_one() }
}

/// Sets the routine of copies, which `GDRCOPY_ISA` names, and their threads (`GDRCOPY_THREADS`).
pub(crate) fn apply_to_copies() {
    variables::select_routine();
    copy::set_threads(number(&variables::THREADS, "using 1").unwrap_or(1));
}

/// `GDRCOPY_DMA_READ`: bytes from which CUDA's copy engine makes reads.
pub(crate) fn dma_reads() -> Option<usize> {
    number(&variables::DMA_READ, "reads go through the mapping").filter(|&bytes| bytes > 0)
}

/// The value, if it is one that the variable takes. Logs what happens otherwise.
fn number(variable: &Variable, otherwise: &str) -> Option<usize> {
    let request = variable.value()?;
    let number = request.to_str().filter(|text| variable.takes(text));
    if number.is_none() {
        log::warn!("{}={request:?} is not {}; {otherwise}", variable.name, variable.values);
    }
    number?.trim().parse().ok()
}
