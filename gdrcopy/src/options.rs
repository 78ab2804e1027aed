//! How to open a source of GPU memory.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use crate::error::Result;
use crate::gdr::Gdr;

/// A source of GPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The first that works: gdrdrv, then dma-bufs.
    #[default]
    Auto,
    /// The kernel module gdrdrv.
    Gdrdrv,
    /// Dma-bufs that CUDA 13.3 or later exports: needs no kernel module.
    DmaBuf,
    /// Host memory that CUDA has mapped for GPUs, from [`HostMemory`](crate::HostMemory), cuMemHostAlloc or
    /// cuMemHostRegister. It stands in for GPU memory where there is neither gdrdrv nor a dma-buf that can be
    /// mapped: the CPU is fast, and each access of a GPU kernel goes over PCIe. Never chosen by `Auto`.
    ///
    /// [`Gdr::pin`] takes the memory's device address, and pins nothing: the memory is page-locked already.
    /// Mappings are [`Caching`](crate::MappingType::Caching). Needs CUDA 11.7 or later.
    HostMemory,
}

/// How to open a source of GPU memory. Made by [`Gdr::options`].
///
/// ```no_run
/// use gdrcopy::{Backend, Gdr};
/// let gdr = Gdr::options().backend(Backend::DmaBuf).open()?;
/// # Ok::<(), gdrcopy::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) backend: Backend,
    pub(crate) device_path: Option<PathBuf>,
    pub(crate) force_pcie_compat: bool,
}

impl Options {
    /// Uses this backend, and no other if it does not work.
    pub fn backend(mut self, backend: Backend) -> Options {
        self.backend = backend;
        self
    }

    /// gdrdrv's device file, `/dev/gdrdrv` by default.
    pub fn device_path(mut self, path: impl Into<PathBuf>) -> Options {
        self.device_path = Some(path.into());
        self
    }

    /// Whether [`PinFlags::FORCE_PCIE`](crate::PinFlags::FORCE_PCIE) on a GPU that has PCIe only is satisfied by
    /// an ordinary pin, in place of an error. False by default.
    pub fn force_pcie_compat(mut self, yes: bool) -> Options {
        self.force_pcie_compat = yes;
        self
    }

    /// Opens it. Reads no environment variable, creates no thread, does not initialize CUDA.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) with what opening the device file answered;
    /// [`Error::DriverTooOld`](crate::Error::DriverTooOld) below 2.0;
    /// [`Error::LibraryTooOld`](crate::Error::LibraryTooOld) where the driver serves only newer API versions than
    /// 2.6; [`Error::DummyGpuDriver`](crate::Error::DummyGpuDriver) where it was loaded without a GPU driver.
    /// With [`Backend::Auto`], the errors are those of gdrdrv; why dma-bufs do not work is logged.
    pub fn open(self) -> Result<Gdr> {
        Gdr::open_with(&self)
    }
}
