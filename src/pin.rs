//! A pinned range of GPU memory.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::{Backend, PinRequest, PinnedRange};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::types::{GPU_PAGE_SIZE, Info, MapFlag, MappingType, PinFlags};

/// CUDA's peer-to-peer tokens of a buffer, from times when a pin needed them. Zeros mean none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct P2pTokens {
    /// `p2pToken` of `CUDA_POINTER_ATTRIBUTE_P2P_TOKENS`.
    pub p2p_token: u64,
    /// `vaSpaceToken` of the same.
    pub va_space: u32,
}

/// A range of GPU memory that stays where it is, and can be mapped once at a time.
///
/// The driver's pin lasts until both the `Pin` and its [`Mapping`] are gone: a mapping is always
/// taken down first, since kernel modules up to 2.6 mix up their pins otherwise.
#[derive(Debug)]
pub struct Pin {
    shared: Arc<Pinned>,
}

/// What a pin and its mapping share.
#[derive(Debug)]
struct Pinned {
    range: Box<dyn PinnedRange>,
    /// The device address that was asked for.
    address: u64,
    /// Bytes from the first pinned page to that address, where it may be mapped from there.
    head: usize,
    may_map: bool,
    /// The live mapping's type; `None` while there is no mapping.
    mapped: AtomicU32,
}

/// In `Pinned::mapped` while a mapping is being made.
const IN_THE_MAKING: u32 = u32::MAX;

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
        let head = if allow_unaligned_map { unaligned } else { 0 };
        let request = PinRequest {
            address: address - head,
            size: size as u64 + head,
            flags,
            tokens,
        };
        let pinned = Pinned {
            range: backend.pin(&request)?,
            address,
            head: head as usize,
            may_map: unaligned == head,
            mapped: AtomicU32::new(MappingType::None as u32),
        };
        Ok(Pin {
            shared: Arc::new(pinned),
        })
    }

    /// What is known of the pin, mapped or not.
    ///
    /// # Errors
    /// What the driver answered. In persistent mode it is asked once.
    pub fn info(&self) -> Result<Info> {
        let mapped = self.shared.mapped.load(Ordering::Acquire);
        let mapped = MappingType::from_raw(mapped).unwrap_or(MappingType::None);
        self.shared.range.info(mapped)
    }

    /// Whether the memory was freed while pinned (non-persistent mode; then the mapping is gone too).
    ///
    /// # Errors
    /// What the driver answered.
    pub fn callback_flag(&self) -> Result<bool> {
        self.shared.range.callback_flag()
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
        let Pinned {
            range,
            address,
            head,
            may_map,
            mapped,
            ..
        } = &*self.shared;
        let mark = MappedMark::set(&self.shared)?;
        if size == 0 {
            return Err(Error::EmptyRange);
        }
        if !may_map {
            return Err(Error::UnalignedMap { address: *address });
        }
        let len = size.checked_add(*head).ok_or(Error::RangeOverflow)?;
        let (region, kind) = range.map(len, flag)?;
        mapped.store(kind as u32, Ordering::Release);
        Ok(Mapping::new(region, kind, mark))
    }

    /// Unpins the range, with the driver's answer, if its mapping is gone; otherwise the mapping takes
    /// the pin with it.
    pub fn unpin(self) -> Result<()> {
        match Arc::into_inner(self.shared) {
            Some(pinned) => pinned.range.unpin(),
            None => Ok(()),
        }
    }

    /// The driver's number for the pin.
    pub(crate) fn driver_handle(&self) -> u64 {
        self.shared.range.handle()
    }
}

/// Marks a pin as mapped as long as it exists, and keeps the pin.
#[derive(Debug)]
pub(crate) struct MappedMark(Arc<Pinned>);

impl MappedMark {
    fn set(pinned: &Arc<Pinned>) -> Result<MappedMark> {
        let none = MappingType::None as u32;
        pinned
            .mapped
            .compare_exchange(none, IN_THE_MAKING, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| MappedMark(Arc::clone(pinned)))
            .map_err(|_| Error::AlreadyMapped)
    }
}

impl Drop for MappedMark {
    fn drop(&mut self) {
        self.0
            .mapped
            .store(MappingType::None as u32, Ordering::Release);
    }
}
