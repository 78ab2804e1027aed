//! A pinned range of GPU memory.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::backend::{Backend, PinRequest};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::pin_state::{MappingGuard, PinState};
use crate::types::{Info, MapFlag, P2pTokens, PinFlags};

/// A range of GPU memory that stays where it is, and can be mapped once at a time.
///
/// The driver's pin lasts until both the `Pin` and its [`Mapping`] are gone: a mapping is always
/// taken down first, because gdrdrv modules up to 2.6 otherwise corrupt their list of pins.
#[derive(Debug)]
pub struct Pin {
    pinned: Arc<PinState>,
    /// Bytes from the start of the mapping to the pinned address.
    head: usize,
    /// Why it cannot be mapped, if so.
    refusal: Option<Error>,
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
        let page_size = backend.page_size();
        let (head, refusal) = match (address % page_size, allow_unaligned_map) {
            (0, _) => (0, None),
            (offset, true) => (offset, None),
            (_, false) => (0, Some(Error::UnalignedMap { address, page_size })),
        };
        let request = PinRequest {
            address: address - head,
            size: size as u64 + head,
            flags,
            tokens,
        };
        Ok(Pin {
            pinned: PinState::new(backend.pin(&request)?),
            head: head as usize,
            refusal,
        })
    }

    /// Describes the pin, mapped or not.
    ///
    /// # Errors
    /// What the driver answered. In persistent mode it is asked once.
    pub fn info(&self) -> Result<Info> {
        self.pinned.range().info(self.pinned.mapping_type())
    }

    /// Returns whether the memory was freed while pinned (non-persistent mode; the mapping is then gone too).
    ///
    /// # Errors
    /// What the driver answered.
    pub fn callback_flag(&self) -> Result<bool> {
        self.pinned.range().callback_flag()
    }

    /// Maps the first `size` bytes, rounded up to host pages.
    ///
    /// The pinned address must start a page: of 64 KiB with gdrdrv, of the host's page size with dma-bufs.
    /// With `GDRCOPY_ALLOW_UNALIGNED_MAP=1` it need not: the mapping then starts at [`Info::va`], the
    /// page before, and `size` counts from the pinned address.
    ///
    /// # Errors
    /// [`Error::AlreadyMapped`]; [`Error::UnalignedMap`]; [`Error::EmptyRange`] for size 0;
    /// [`Error::MappingRevoked`] if the memory is freed at the same time;
    /// [`Error::MappingTypeRefused`], or `EOPNOTSUPP` from the driver, where the platform cannot map
    /// as `flag` requests; otherwise what the driver answered (`EINVAL` for more than is pinned).
    pub fn map(&self, size: usize, flag: MapFlag) -> Result<Mapping> {
        let mark = MappingGuard::set(&self.pinned)?;
        if size == 0 {
            return Err(Error::EmptyRange);
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let len = size.checked_add(self.head).ok_or(Error::RangeOverflow)?;
        let (region, kind) = self.pinned.range().map(len, flag)?;
        mark.made(kind);
        Ok(Mapping::new(region, kind, mark))
    }

    /// Unpins the range if its mapping is gone; otherwise it is unpinned when the mapping is dropped.
    ///
    /// # Errors
    /// What the driver answered, with the pin, which is unchanged: `unpin` can be called again.
    pub fn unpin(mut self) -> std::result::Result<(), (Pin, Error)> {
        self.release().map_err(|error| (self, error))
    }

    /// [`Pin::unpin`] for callers that keep the pin. After success it can only be dropped.
    #[doc(hidden)]
    pub fn release(&mut self) -> Result<()> {
        match Arc::get_mut(&mut self.pinned) {
            Some(pinned) => pinned.range().unpin(),
            None => Ok(()),
        }
    }

    /// The driver's number for the pin.
    #[doc(hidden)]
    pub fn driver_handle(&self) -> u64 {
        self.pinned.range().handle()
    }
}
