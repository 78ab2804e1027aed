//! A pinned range of GPU memory.

use std::sync::Arc;

use crate::backend::dmabuf::{self, DmaBufExport};
use crate::backend::{MappingGuard, PinRequest, PinState, Source};
use crate::error::{Error, Result};
use crate::mapping::RawMapping;
use crate::sys::fork::{OpenFile, Owner};
use crate::types::{Info, MapFlag, P2pTokens, PinFlags};

/// A pinned range of GPU memory. The crate `gdrcopy` wraps it as `Pin`, and documents it there.
#[derive(Debug)]
pub struct RawPin {
    pinned: Arc<PinState>,
    /// The address that the caller pinned, before rounding to pages.
    address: u64,
    len: usize,
    /// The offset of `address` in the first pinned page, in bytes.
    head: usize,
    flags: PinFlags,
    owner: Owner,
    is_released: bool,
}

impl RawPin {
    pub(crate) fn new(
        backend: &Arc<dyn Source>,
        address: u64,
        len: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<RawPin> {
        if address == 0 {
            return Err(Error::EmptyRange);
        }
        if address.checked_add(len as u64).is_none() {
            return Err(Error::RangeOverflow);
        }
        let head = address % backend.page_size();
        let request = PinRequest { address: address - head, size: len as u64 + head, flags, tokens };
        let pinned = Arc::clone(backend).pin(&request)?;
        Ok(RawPin { pinned, address, len, head: head as usize, flags, owner: Owner::current(), is_released: false })
    }

    /// The device address that the caller asked to pin.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes that the caller asked to pin.
    #[expect(clippy::len_without_is_empty, reason = "an empty pin cannot be used")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Describes the pin, mapped or not. If pins are persistent
    /// ([`UsePersistentMapping`](crate::types::Attribute::UsePersistentMapping)), asks the driver only once.
    pub fn info(&self) -> Result<Info> {
        self.owner.check()?;
        let mapped = self.pinned.mapping_type();
        self.pinned.range.info(mapped)
    }

    /// Returns whether the memory was freed while pinned. If so, the mapping is gone too. The result is always false
    /// for persistent pins, whose memory stays until they are unpinned.
    pub fn callback_flag(&self) -> Result<bool> {
        self.owner.check()?;
        self.pinned.range.callback_flag()
    }

    /// Maps `len` bytes. Byte 0 of the mapping is the byte at [`RawPin::address`], whatever its alignment. `len` can be
    /// more than [`RawPin::len`], up to the end of the pages that the driver has pinned.
    ///
    /// # Safety
    /// Bytes after [`RawPin::len`] are written only if the caller may write them. They can belong to other allocations.
    pub unsafe fn map(&self, len: usize, flag: MapFlag) -> Result<RawMapping> {
        self.owner.check()?;
        let mark = MappingGuard::set(&self.pinned)?;
        if self.is_released {
            return Err(Error::Unpinned);
        }
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        let Some(reach) = len.checked_add(self.head) else {
            return Err(Error::RangeOverflow);
        };
        let (region, mapping_type) = self.pinned.range.map(reach, flag)?;
        mark.set_type(mapping_type);
        Ok(RawMapping::new(region, mapping_type, mark, self.address, self.head, len))
    }

    /// Exports the pinned memory as a new dma-buf.
    pub fn dma_buf(&self) -> Result<DmaBufExport> {
        self.owner.check()?;
        dmabuf::export(self.address, self.len, self.flags)
    }

    /// Unpins the range if its mapping is gone. Otherwise the range stays pinned until the pin and the mapping are
    /// dropped. After an error, the pin is unchanged, and the call can be repeated. After success, drop the pin.
    pub fn release(&mut self) -> Result<()> {
        if !self.pinned.is_mapped() {
            self.owner.check()?;
            self.pinned.range.unpin()?;
        }
        self.is_released = true;
        Ok(())
    }

    /// Returns whether the pin's address starts a page of the backend. C programs can map only such pins by default.
    pub fn starts_page(&self) -> bool {
        self.head == 0
    }

    /// The open descriptor of the pin's dma-buf; `None` for a backend whose pins have no descriptors.
    pub fn file(&self) -> Option<OpenFile> {
        self.pinned.range.file()
    }

    /// The driver's number for the pin.
    pub fn driver_handle(&self) -> u64 {
        self.pinned.range.handle()
    }
}
