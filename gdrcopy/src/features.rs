//! The machine's support of access to GPU memory.
#![forbid(unsafe_code)]

use std::path::Path;

use gdrcopy_core::backend::Source;
use gdrcopy_core::backend::dmabuf;
use gdrcopy_core::backend::gdrdrv::Gdrdrv;
use gdrcopy_core::error::{Error, Result};
use gdrcopy_core::options::Options;
use gdrcopy_core::sys::cuda::{self, Device, Driver};
use gdrcopy_core::sys::fork;
use gdrcopy_core::types::Version;
use gdrcopy_core::types::cuda_version::{EXPORTS_DMA_BUFS, MAPS_DMA_BUFS};

/// Exists while the module is loaded.
const PEERMEM: &str = "/sys/module/nvidia_peermem";

/// The machine's support of access to GPU memory ([`features`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// The version of the kernel module gdrdrv, or why it cannot be used.
    pub gdrdrv: Result<Version>,
    /// CUDA's export of any GPU's memory as a dma-buf ([`Pin::dma_buf`](crate::Pin::dma_buf)).
    pub dma_buf_export: Support,
    /// Mapping of such a dma-buf ([`Backend::DmaBuf`](crate::Backend::DmaBuf)).
    pub dma_buf_mapping: Support,
    /// True if the kernel module nvidia-peermem is loaded, with which `ibv_reg_mr` takes device addresses.
    pub nvidia_peermem: bool,
}

/// The support of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// It works, on one GPU at least.
    Yes,
    /// It does not; the error says what to do.
    No(Error),
    /// The GPU driver is new enough. GPUs cannot be asked before CUDA is initialized.
    Unknown,
}

/// Returns the machine's support of access to GPU memory. Opens and closes `/dev/gdrdrv`, and loads the CUDA
/// driver, but never initializes it. Unless the program has, support of dma-bufs is [`Support::Unknown`].
pub fn features() -> Features {
    look(|driver| driver.device_count_if_initialized())
}

/// As [`features`], and initializes CUDA, so that nothing is [`Support::Unknown`]. Children that are forked later
/// cannot use CUDA.
pub fn features_with_cuda() -> Features {
    look(|driver| {
        driver.init()?;
        driver.device_count_if_initialized()
    })
}

fn look(gpus: impl Fn(&Driver) -> Result<Option<i32>>) -> Features {
    let support = |needed, can, none: fn(i32) -> Error| support(needed, &gpus, can, none).unwrap_or_else(Support::No);
    let no_export = |gpus| match gpus {
        0 => Error::NoDmaBufGpu { gpus },
        _ => Error::NoDmaBufExport { gpu: 0 },
    };
    let no_mapping = |gpus| Error::NoDmaBufGpu { gpus };
    let options = Options::default();
    Features {
        gdrdrv: fork::enter().and_then(|_| Gdrdrv::open(&options)).map(|gdrdrv| Source::version(&gdrdrv)),
        dma_buf_export: support(EXPORTS_DMA_BUFS, dmabuf::can_export, no_export),
        dma_buf_mapping: support(MAPS_DMA_BUFS, dmabuf::can_map, no_mapping),
        nvidia_peermem: Path::new(PEERMEM).exists(),
    }
}

/// Support by any GPU; `none` is the error if none has it.
fn support(
    needed: i32,
    gpus: impl Fn(&Driver) -> Result<Option<i32>>,
    can: fn(&Driver, Device) -> Result<bool>,
    none: fn(i32) -> Error,
) -> Result<Support> {
    let driver = cuda::load(needed)?;
    Ok(match gpus(driver)? {
        None => Support::Unknown,
        Some(gpus) if dmabuf::any_gpu(driver, gpus, can)? => Support::Yes,
        Some(gpus) => Support::No(none(gpus)),
    })
}
