//! A pinned range of GPU memory.

use gdrcopy_core::backend::dmabuf::{self, DmaBufExport};
use gdrcopy_core::error::out_of_pin;
use gdrcopy_core::pin::RawPin;
use gdrcopy_core::types::{MapFlag, MappingType, PinFlags};

use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// A pinned range of GPU memory. The memory stays in place, and can have one mapping at a time.
///
/// The driver's pin lasts until both the `Pin` and its [`Mapping`] are gone. The memory is always unmapped before it is
/// unpinned, because NVIDIA's gdrdrv up to 2.6 otherwise corrupts its list of pins.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Gdr, MapFlag, Mapped, PinFlags};
/// let address = gpu.device_pointer(); // from cuMemAlloc
/// // SAFETY: the memory is freed after the pin, and nothing else uses it.
/// let pin = unsafe { Gdr::open()?.pin(address + 100, 4096, PinFlags::DEFAULT)? };
/// let mapping = pin.map(4096, MapFlag::Default)?;
/// mapping.write(0, b"at address + 100")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pin {
    raw: RawPin,
}

/// The description of a pin ([`Pin::info`]).
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Gdr, PinFlags};
/// // SAFETY: the memory is freed after the pin, and nothing else uses it.
/// let pin = unsafe { Gdr::open()?.pin(gpu.device_pointer() + 100, 1, PinFlags::DEFAULT)? };
/// let info = pin.info()?;
/// assert!(info.address <= pin.address() && info.len as u64 % u64::from(info.page_size) == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinInfo {
    /// Device address of the first pinned page. The address that was pinned is in this page.
    pub address: u64,
    /// The size of all pinned pages in bytes.
    pub len: usize,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The type of the pin's mapping, or `None` while the pin is not mapped.
    pub mapping_type: Option<MappingType>,
}

impl Pin {
    pub(crate) fn of_raw(raw: RawPin) -> Pin {
        Pin { raw }
    }

    /// Device address of the first pinned byte, as it was passed to [`Gdr::pin`](crate::Gdr::pin).
    pub fn address(&self) -> u64 {
        self.raw.address()
    }

    /// The number of pinned bytes, as it was passed to [`Gdr::pin`](crate::Gdr::pin).
    #[expect(clippy::len_without_is_empty, reason = "an empty pin cannot be used")]
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Describes the pin, mapped or not.
    ///
    /// # Errors
    /// The driver's error. In persistent mode ([`Gdr::is_persistent`](crate::Gdr::is_persistent)), the driver is asked
    /// only once.
    #[doc(alias("gdr_get_info", "gdr_get_info_v2"))]
    pub fn info(&self) -> Result<PinInfo> {
        let info = self.raw.info()?;
        Ok(PinInfo {
            address: info.va,
            len: info.mapped_size as usize,
            page_size: info.page_size,
            mapping_type: info.mapping_type,
        })
    }

    /// Returns whether the memory was freed while it was pinned. If so, the mapping is gone too, and accesses to it
    /// raise SIGBUS. In persistent mode ([`Gdr::is_persistent`](crate::Gdr::is_persistent)), this is always false.
    ///
    /// # Errors
    /// The driver's error.
    #[doc(alias = "gdr_get_callback_flag")]
    pub fn is_revoked(&self) -> Result<bool> {
        Ok(self.raw.callback_flag()?)
    }

    /// Maps the first `len` pinned bytes. Byte 0 of the mapping is the byte at [`Pin::address`], whatever its
    /// alignment.
    ///
    /// # Errors
    /// [`GdrError::OutOfPin`](crate::GdrError::OutOfPin) for more than [`Pin::len`];
    /// [`GdrError::AlreadyMapped`](crate::GdrError::AlreadyMapped);
    /// [`GdrError::EmptyRange`](crate::GdrError::EmptyRange) for length 0;
    /// [`GdrError::MappingRevoked`](crate::GdrError::MappingRevoked) if the memory is freed at the same time. Where the
    /// platform cannot map as `flag` requests, [`GdrError::MappingTypeRefused`](crate::GdrError::MappingTypeRefused),
    /// or `EOPNOTSUPP` from the driver. Otherwise the driver's error.
    #[doc(alias("gdr_map", "gdr_map_v2"))]
    pub fn map(&self, len: usize, flag: MapFlag) -> Result<Mapping> {
        let pinned = self.raw.len();
        if len > pinned {
            return Err(out_of_pin(len, pinned).into());
        }
        // SAFETY: the contract of `Gdr::pin` covers the pinned bytes, and the mapping has no others.
        let raw = unsafe { self.raw.map(len, flag) }?;
        Ok(Mapping::of_raw(raw))
    }

    /// Exports the pinned memory as a new dma-buf, for example for `ibv_reg_dmabuf_mr`.
    ///
    /// This works with gdrdrv and with dma-bufs as the backend. If the pin has [`PinFlags::FORCE_PCIE`], accesses
    /// through the dma-buf go over PCIe on a coherent platform too. The call initializes CUDA if the process has not
    /// done so.
    ///
    /// # Errors
    /// The errors of [`export_dma_buf`]; [`GdrError::ForkedChild`](crate::GdrError::ForkedChild).
    pub fn export_dma_buf(&self) -> Result<DmaBufExport> {
        Ok(self.raw.dma_buf()?)
    }

    /// Unpins the range if its mapping is gone. Otherwise the range is unpinned when the mapping is dropped.
    ///
    /// # Errors
    /// The driver's error, together with the unchanged pin, so that `unpin` can be called again.
    #[doc(alias = "gdr_unpin_buffer")]
    pub fn unpin(mut self) -> std::result::Result<(), (Pin, Error)> {
        match self.raw.release() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error.into())),
        }
    }
}

/// Exports `len` bytes of GPU memory from device address `address` on as a new dma-buf, without a pin. This works
/// without gdrdrv, and uses no BAR1. The call initializes CUDA if the process has not done so.
///
/// With [`PinFlags::FORCE_PCIE`], accesses through the dma-buf go over PCIe on a coherent platform too.
///
/// # Errors
/// [`GdrError::CudaTooOld`](crate::GdrError::CudaTooOld) below CUDA 11.7;
/// [`GdrError::NoDmaBufExport`](crate::GdrError::NoDmaBufExport) if the GPU or Linux cannot export dma-bufs;
/// [`GdrError::EmptyRange`](crate::GdrError::EmptyRange); [`GdrError::RangeOverflow`](crate::GdrError::RangeOverflow);
/// [`GdrError::Descriptors`](crate::GdrError::Descriptors) if too few file descriptors are left;
/// [`GdrError::Cuda`](crate::GdrError::Cuda) with CUDA's error, which is `EINVAL` for host memory, for managed memory,
/// and if the pages that contain the bytes do not all belong to one allocation. Memory of CUDA's pools can be exported,
/// although it cannot be pinned.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::PinFlags;
/// let export = gdrcopy::export_dma_buf(gpu.device_pointer() + 100, 1000, PinFlags::DEFAULT)?;
/// assert_eq!((export.offset, export.len), (100, 4096)); // whole pages
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "gdrx_dmabuf")]
pub fn export_dma_buf(address: u64, len: usize, flags: PinFlags) -> Result<DmaBufExport> {
    Ok(dmabuf::export(address, len, flags)?)
}
