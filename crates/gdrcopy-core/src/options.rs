//! Options for opening a source of GPU memory.
#![forbid(unsafe_code)]

use std::path::PathBuf;

/// A source of GPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Gdrdrv, or dma-bufs if gdrdrv does not work. If gdrdrv fails only because the process lacks descriptors or
    /// memory, or because signals interrupt the call, opening fails and dma-bufs are not tried.
    #[default]
    Auto,
    /// The kernel module gdrdrv.
    Gdrdrv,
    /// Dma-bufs that CUDA 13.3 or later exports, without a kernel module.
    DmaBuf,
    /// Host memory that CUDA has mapped for GPUs, from `HostMemory`, cuMemHostAlloc or cuMemHostRegister. It stands
    /// in for GPU memory where there is neither gdrdrv nor a dma-buf that can be mapped. Accesses by the CPU are fast,
    /// and each access by a GPU kernel goes over PCIe. `Auto` never chooses it.
    ///
    /// `Gdr::pin` takes the memory's device address, and pins nothing, because the memory is page-locked already.
    /// Mappings are [`Caching`](crate::types::MappingType::Caching). Needs CUDA 11.7 or later.
    HostMemory,
}

/// Options for opening a source of GPU memory.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The source to open. Only `Auto` tries more than one.
    pub backend: Backend,
    /// gdrdrv's device file; `/dev/gdrdrv` if `None`.
    pub device_path: Option<PathBuf>,
    /// If true, a pin with FORCE_PCIE on a GPU that has no other link than PCIe does not fail, but is an ordinary pin.
    pub force_pcie_compat: bool,
}
