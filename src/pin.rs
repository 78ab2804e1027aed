//! A pinned range of GPU memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::{Backend, PinRequest};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::pinned::{MappedMark, Pinned};
use crate::types::{GPU_PAGE_SIZE, Info, MapFlag, P2pTokens, PinFlags};

/// A range of GPU memory that stays where it is, and can be mapped once at a time.
///
/// The driver's pin lasts until both the `Pin` and its [`Mapping`] are gone: a mapping is always
/// taken down first, since kernel modules up to 2.6 mix up their pins otherwise.
#[derive(Debug)]
pub struct Pin {
    pinned: Arc<Pinned>,
    /// The device address that was asked for.
    address: u64,
    /// Bytes from the first pinned page to that address, where it may be mapped from there.
    head: usize,
    may_map: bool,
}

impl Pin {
    pub(crate) fn new(
        backend: &dyn Backend,
        allow_unaligned_map: bool,
        address: u64,
        size: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<Pin> {
        if address == 0 {
            return Err(Error::EmptyRange);
        }
        if address.checked_add(size as u64).is_none() {
            return Err(Error::RangeOverflow);
        }
        let unaligned = address % GPU_PAGE_SIZE;
        let head = if allow_unaligned_map {
            address % backend.page_size()
        } else {
            0
        };
        let request = PinRequest {
            address: address - head,
            size: size as u64 + head,
            flags,
            tokens,
        };
        Ok(Pin {
            pinned: Pinned::new(backend.pin(&request)?),
            address,
            head: head as usize,
            may_map: allow_unaligned_map || unaligned == 0,
        })
    }

    /// What is known of the pin, mapped or not.
    ///
    /// # Errors
    /// What the driver answered. In persistent mode it is asked once.
    pub fn info(&self) -> Result<Info> {
        self.pinned.range().info(self.pinned.mapping_type())
    }

    /// Whether the memory was freed while pinned (non-persistent mode; then the mapping is gone too).
    ///
    /// # Errors
    /// What the driver answered.
    pub fn callback_flag(&self) -> Result<bool> {
        self.pinned.range().callback_flag()
    }

    /// Maps the first `size` bytes, rounded up to host pages.
    ///
    /// With `GDRCOPY_ALLOW_UNALIGNED_MAP=1` the pinned address need not be 64 KiB aligned: the mapping
    /// then starts at [`Info::va`], the page before, and `size` counts from the pinned address.
    ///
    /// # Errors
    /// [`Error::AlreadyMapped`]; [`Error::UnalignedMap`]; [`Error::EmptyRange`] for size 0;
    /// [`Error::MappingTypeRefused`], or `EOPNOTSUPP` from the driver, where the platform cannot map
    /// as `flag` asks; what else the driver answered (`EINVAL` for more than is pinned).
    pub fn map(&self, size: usize, flag: MapFlag) -> Result<Mapping> {
        let mark = MappedMark::set(&self.pinned)?;
        if size == 0 {
            return Err(Error::EmptyRange);
        }
        if !self.may_map {
            let address = self.address;
            return Err(Error::UnalignedMap { address });
        }
        let len = size.checked_add(self.head).ok_or(Error::RangeOverflow)?;
        let (region, kind) = self.pinned.range().map(len, flag)?;
        mark.made(kind);
        Ok(Mapping::new(region, kind, mark))
    }

    /// Unpins the range, with the driver's answer, if its mapping is gone; otherwise the mapping takes
    /// the pin with it.
    pub fn unpin(self) -> Result<()> {
        match Arc::into_inner(self.pinned) {
            Some(pinned) => pinned.into_range().unpin(),
            None => Ok(()),
        }
    }

    /// The driver's number for the pin.
    pub(crate) fn driver_handle(&self) -> u64 {
        self.pinned.range().handle()
    }
}
