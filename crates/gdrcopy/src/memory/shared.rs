//! GPU memory of another process.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use gdrcopy_core::copy::mixed;
use gdrcopy_core::error::Error as GdrError;
use gdrcopy_core::sys::fork::page_size;
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::MappingType;

use crate::access::{Mapped, MappedSlice, sealed};
use crate::error::Result;

/// A mapping of GPU memory that another process has exported as a dma-buf. This process needs neither CUDA nor gdrdrv
/// for the mapping.
///
/// The exporter sends the descriptor of [`export_dma_buf`](crate::export_dma_buf) over a Unix socket, with its offset,
/// the length, and the mapping type. The memory stays in place until the mapping is dropped, even if the exporter frees
/// it or exits. Device addresses are valid only in the exporter, so [`Mapped::device_address`] counts from 0 here.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::SharedMapping;
/// use gdrcopy::{Mapped, MappingType};
/// # let exported = gdrcopy::export_dma_buf(gpu.device_pointer(), 4096, gdrcopy::PinFlags::FORCE_PCIE)?;
/// # let (fd, offset, len) = (exported.fd, exported.offset, 4096);
///
/// // `fd`, `offset` and `len` came over a socket.
/// let memory = SharedMapping::new(fd, offset, len, MappingType::WriteCombining)?;
/// memory.write(0, b"from a process without CUDA")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "gdrx_unmap_dmabuf")]
#[derive(Debug)]
pub struct SharedMapping {
    region: Region,
    /// The number of bytes from the start of `region`, a page boundary, to the first byte that was asked for.
    head: usize,
    len: usize,
    mapping_type: MappingType,
    fd: OwnedFd,
}

impl SharedMapping {
    /// Maps `len` bytes of a dma-buf from byte `offset` on.
    ///
    /// `mapping_type` is the type of the exporter's own mapping of the memory ([`Mapped::mapping_type`]). If the
    /// exporter has no mapping, it must export with [`PinFlags::FORCE_PCIE`](crate::PinFlags::FORCE_PCIE). Then
    /// `WriteCombining` is right on each platform.
    ///
    /// # Errors
    /// [`GdrError::EmptyRange`](crate::GdrError::EmptyRange);
    /// [`GdrError::RangeOverflow`](crate::GdrError::RangeOverflow);
    /// [`GdrError::Driver`](crate::GdrError::Driver) with the error of mmap, if the exporter's driver cannot map
    /// dma-bufs (this needs CUDA 13.3).
    #[doc(alias = "gdrx_map_dmabuf")]
    pub fn new(fd: OwnedFd, offset: u64, len: usize, mapping_type: MappingType) -> Result<SharedMapping> {
        if len == 0 {
            return Err(GdrError::EmptyRange.into());
        }
        let page = page_size();
        let head = (offset % page as u64) as usize;
        let Some(mapped) = len.checked_add(head).and_then(|end| end.checked_next_multiple_of(page)) else {
            return Err(GdrError::RangeOverflow.into());
        };
        let region = Region::map(&fd, offset - head as u64, mapped)?;
        mixed::record(mapping_type);
        Ok(SharedMapping { region, head, len, mapping_type, fd })
    }

    /// The dma-buf, which can be sent to another process.
    pub fn dma_buf(&self) -> &OwnedFd {
        &self.fd
    }
}

impl sealed::Sealed for SharedMapping {}

impl Mapped for SharedMapping {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        MappedSlice::of_region(&self.region, self.head, self.len, 0, self.mapping_type)
    }
}
