//! The interface of each source of GPU memory, such as gdrdrv, and the data that a pin shares with its mapping.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::heap;
use crate::sys::fork::OpenFile;
use crate::sys::mmap::Region;
use crate::types::{Attribute, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version, raw};

/// An open connection to a source of GPU memory. A forked child calls no method of its parent's connections and pins
/// except `close`, `file`, `handle` and `drop`.
pub trait Source: Send + Sync {
    /// The descriptor of `/dev/gdrdrv` that this connection has opened; `None` for a backend without a device file.
    fn file(&self) -> Option<OpenFile> {
        None
    }

    /// The driver's version.
    fn version(&self) -> Version;

    /// The size of a page in bytes. Pins are rounded out to pages, and a mapping begins where a page begins.
    fn page_size(&self) -> u64;

    /// Returns the value of an attribute; 0 if the driver does not know it.
    fn attribute(&self, attribute: Attribute) -> Result<i32>;

    /// Pins the range, rounded out to pages.
    fn pin(self: Arc<Self>, range: &PinRequest) -> Result<Arc<PinState>>;

    /// Closes the connection, unless pins or other threads still use it, and returns the driver's answer.
    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

// `Debug` is not a supertrait, because libgdrapi would then contain code to print each backend, which it never calls.

impl fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.version())
    }
}

impl fmt::Debug for dyn SourcePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourcePin({:#x})", self.handle())
    }
}

/// A range to pin.
#[derive(Clone, Copy, Debug)]
pub struct PinRequest {
    /// Device address of the first byte.
    pub address: u64,
    /// The number of bytes. If it is 0, gdrdrv decides whether the pin fails, and other backends refuse the pin.
    pub size: u64,
    pub flags: PinFlags,
    /// CUDA's peer-to-peer tokens for the range. Only gdrdrv before 2.5 looks at them.
    pub tokens: P2pTokens,
}

/// Rounds a range out to whole pages.
pub(super) fn round_out(address: u64, size: u64, page: u64) -> Result<Range<u64>> {
    if let Some(end) = address.checked_add(size)
        && let Some(end) = end.checked_next_multiple_of(page)
    {
        return Ok(address - address % page..end);
    }
    Err(Error::RangeOverflow)
}

/// Fails if the flag asks for another mapping type than the driver gives.
pub(super) fn check_type(flag: MapFlag, given: MappingType) -> Result<()> {
    match flag.wanted() {
        Some(wanted) if wanted != given => Err(Error::MappingTypeRefused { wanted, given }),
        _ => Ok(()),
    }
}

/// A pinned range. Dropping it unpins it.
pub trait SourcePin: Send + Sync {
    /// The driver's number for the pin.
    fn handle(&self) -> u64;

    /// The open descriptor of the pin's dma-buf; `None` for a backend whose pins have no descriptors.
    fn file(&self) -> Option<OpenFile> {
        None
    }

    /// Describes the pin; `mapped` is the type of its live mapping.
    fn info(&self, mapped: Option<MappingType>) -> Result<Info>;

    /// Returns whether the pinned memory has been freed.
    fn callback_flag(&self) -> Result<bool>;

    /// Maps the first `len` bytes, and returns the mapping's type. For GPU memory, rounds `len` up to host pages.
    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)>;

    /// Unpins the range, or leaves that to `drop`. After an error, the range stays pinned; else callers drop the pin.
    fn unpin(&self) -> Result<()>;
}

/// A pin of the driver. It lasts as long as there is a `RawPin` or a mapping of it.
#[derive(Debug)]
pub struct PinState<T: ?Sized = dyn SourcePin> {
    /// The live mapping's type, [`NOT_MAPPED`] or [`BEING_MAPPED`].
    mapped: AtomicU32,
    pub(crate) range: T,
}

/// The value of `PinState::mapped` while there is no mapping.
const NOT_MAPPED: u32 = 0;
/// The value of `PinState::mapped` while a mapping is being made.
const BEING_MAPPED: u32 = u32::MAX;

impl<T: SourcePin + 'static> PinState<T> {
    /// Wraps a pin that the driver has just made. If there is no memory for that, drops the pin, which unpins it.
    pub fn of_range(range: T) -> Result<Arc<PinState>> {
        Ok(heap::shared(PinState { mapped: AtomicU32::new(NOT_MAPPED), range })?)
    }
}

impl PinState {
    /// The type of the pin's live mapping.
    pub(crate) fn mapping_type(&self) -> Option<MappingType> {
        raw::mapping_type(self.mapped.load(Ordering::Acquire))
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.load(Ordering::Acquire) != NOT_MAPPED
    }
}

/// While this guard exists, the pin counts as mapped and stays alive.
#[derive(Debug)]
pub(crate) struct MappingGuard(Arc<PinState>);

impl MappingGuard {
    /// Marks a pin as being mapped. Fails if it is mapped or being mapped already.
    pub(crate) fn set(pinned: &Arc<PinState>) -> Result<MappingGuard> {
        let marked = pinned.mapped.compare_exchange(NOT_MAPPED, BEING_MAPPED, Ordering::AcqRel, Ordering::Acquire);
        if marked.is_err() {
            return Err(Error::AlreadyMapped);
        }
        Ok(MappingGuard(Arc::clone(pinned)))
    }

    /// Stores the type of the mapping that was just made.
    pub(crate) fn set_type(&self, mapping_type: MappingType) {
        self.0.mapped.store(mapping_type as u32, Ordering::Release);
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        self.0.mapped.store(NOT_MAPPED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_rounded_out_to_pages() {
        const PAGE: u64 = 0x10000;
        assert_eq!(round_out(0x10000, 1, PAGE), Ok(0x10000..0x20000));
        assert_eq!(round_out(0x1ffff, 2, PAGE), Ok(0x10000..0x30000));
        assert_eq!(round_out(0x10000, 0, PAGE), Ok(0x10000..0x10000));
        assert_eq!(round_out(0x10001, 0, PAGE), Ok(0x10000..0x20000));
        assert_eq!(round_out(0x10000, u64::MAX, PAGE), Err(Error::RangeOverflow));
        assert_eq!(round_out(u64::MAX - 1, 1, PAGE), Err(Error::RangeOverflow));
    }
}
