//! An open connection to gdrdrv or another backend, and the options for opening it.

use std::path::PathBuf;

use gdrcopy_core::RawGdr;
use gdrcopy_core::options::{self, Backend};
use gdrcopy_core::types::{Attribute, P2pTokens, PinFlags, Version};

use crate::error::{GdrError, Result};
use crate::pin::Pin;

/// An open connection to the driver. Cloning it is cheap. The connection is closed when the last clone is dropped and
/// the last of its pins is gone.
///
/// Any thread may use the connection. A forked child must open its own. Every call on an inherited connection, except
/// [`Gdr::close`], fails with [`GdrError::ForkedChild`] and touches nothing. A child that closes or drops an inherited
/// connection closes its copy of the file descriptor. An open copy would keep the parent's pins after the parent's end.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// let gdr = gdrcopy::Gdr::open()?;
/// println!("{}, pins outlive frees: {}", gdr.driver_version()?, gdr.is_persistent()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gdr {
    raw: RawGdr,
}

impl Gdr {
    /// Opens gdrdrv or, if gdrdrv does not work, prepares the use of CUDA's dma-bufs.
    ///
    /// # Errors
    /// The errors of [`GdrOptions::open`].
    #[doc(alias = "gdr_open")]
    pub fn open() -> Result<Gdr> {
        Gdr::options().open()
    }

    /// Returns options that select the backend, such as gdrdrv, and how it is opened.
    pub fn options() -> GdrOptions {
        GdrOptions::default()
    }

    pub(crate) fn of_raw(raw: RawGdr) -> Gdr {
        Gdr { raw }
    }

    /// Returns the driver's version, or [`Version::API`] with dma-bufs.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`].
    #[doc(alias = "gdr_driver_get_version")]
    pub fn driver_version(&self) -> Result<Version> {
        Ok(self.raw.driver_version()?)
    }

    /// Returns whether pinned memory stays alive and mapped until it is unpinned, even if it is freed before. Otherwise
    /// the driver takes mappings away when their memory is freed ([`Pin::is_revoked`]), and later accesses raise
    /// SIGBUS.
    ///
    /// # Errors
    /// The driver's error. The driver's answer is kept, so the driver is asked only once.
    #[doc(alias = "gdr_get_attribute")]
    pub fn is_persistent(&self) -> Result<bool> {
        self.attribute(Attribute::UsePersistentMapping)
    }

    /// Returns whether the driver knows [`PinFlags::FORCE_PCIE`]. A GPU that has no other link than PCIe refuses the
    /// flag nevertheless.
    ///
    /// # Errors
    /// The driver's error. The driver's answer is kept, so the driver is asked only once.
    pub fn supports_force_pcie(&self) -> Result<bool> {
        self.attribute(Attribute::SupportPinFlagForcePcie)
    }

    /// Returns whether this connection uses dma-bufs.
    ///
    /// # Errors
    /// [`GdrError::ForkedChild`].
    pub fn uses_dma_bufs(&self) -> Result<bool> {
        self.attribute(Attribute::UsingDmaBufMmap)
    }

    fn attribute(&self, attribute: Attribute) -> Result<bool> {
        Ok(self.raw.attribute(attribute)? != 0)
    }

    /// Pins `len` bytes of GPU memory from device address `address` on. Any alignment will do.
    ///
    /// # Safety
    /// Mapping and accessing the pinned memory are safe calls, so until the pin and its mapping are gone:
    /// - the range must stay allocated. The driver keeps a freed range from being allocated again only in persistent
    ///   mode ([`Gdr::is_persistent`]) and with dma-bufs. Elsewhere an access to a freed range raises SIGBUS;
    /// - writes through the mapping must not break anyone else's memory safety. The range must hold no memory that
    ///   other code of this process, or a GPU kernel, expects to stay unchanged. An example is the GPU memory behind a
    ///   live `&[T]` of a managed allocation;
    /// - GPU kernels and CUDA may write the range at any time. A reader then sees old, new or mixed bytes.
    ///
    /// [`Gdr::map_owned`] needs no such promise.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`] for address 0 or length 0; [`GdrError::RangeOverflow`]; or the driver's error, such as
    /// `EINVAL` for memory that cannot be pinned, and `ENOMEM` when BAR1 is used up.
    #[doc(alias("gdr_pin_buffer", "gdr_pin_buffer_v2"))]
    pub unsafe fn pin(&self, address: u64, len: usize, flags: PinFlags) -> Result<Pin> {
        if len == 0 {
            return Err(GdrError::EmptyRange.into());
        }
        // SAFETY: contract of this function.
        let raw = unsafe { self.raw.pin(address, len, flags, P2pTokens::default()) }?;
        Ok(Pin::of_raw(raw))
    }

    /// Closes the connection if this is the last clone and the last pin is gone, and returns the result of closing. In
    /// a forked child, it closes the child's copy of the descriptor.
    ///
    /// # Errors
    /// Linux's error. The connection is closed in any case.
    #[doc(alias = "gdr_close")]
    pub fn close(self) -> Result<()> {
        Ok(self.raw.close()?)
    }
}

/// The options for opening a [`Gdr`]. [`Gdr::options`] returns the default ones.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Backend, Gdr};
/// let gdr = Gdr::options().backend(Backend::DmaBuf).open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it opens nothing until `open` is called"]
pub struct GdrOptions {
    raw: options::Options,
}

impl GdrOptions {
    /// Sets the backend, which pins and maps GPU memory. Only [`Backend::Auto`], the default, tries more than one.
    pub fn backend(mut self, backend: Backend) -> GdrOptions {
        self.raw.backend = backend;
        self
    }

    /// Sets the path of gdrdrv's device file, which is `/dev/gdrdrv` by default.
    pub fn device_path(mut self, path: impl Into<PathBuf>) -> GdrOptions {
        self.raw.device_path = Some(path.into());
        self
    }

    /// Sets what [`PinFlags::FORCE_PCIE`] does on a GPU that has no other link than PCIe. If `yes` is true, the pin is
    /// an ordinary pin. Otherwise, as by default, the pin fails.
    pub fn force_pcie_compat(mut self, yes: bool) -> GdrOptions {
        self.raw.force_pcie_compat = yes;
        self
    }

    /// Opens the connection. The call reads no environment variable, creates no thread and does not initialize CUDA.
    ///
    /// # Errors
    /// [`GdrError::Driver`] with the error of opening the device file; [`GdrError::DriverTooOld`] if gdrdrv is older
    /// than 2.0; [`GdrError::LibraryTooOld`] if the driver serves only newer API versions than 2.6;
    /// [`GdrError::DummyGpuDriver`] if the driver was loaded without a GPU driver. With [`Backend::Auto`], the errors
    /// are those of gdrdrv, and the log says why dma-bufs do not work.
    pub fn open(self) -> Result<Gdr> {
        Ok(Gdr::of_raw(RawGdr::open(&self.raw)?))
    }
}
