//! The state that a pin and its mapping share, which is the driver's pin, and whether it is mapped.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::SourcePin;
use crate::error::{Error, Result};
use crate::heap;
use crate::types::{MappingType, raw};

/// A pin of the driver, which lasts as long as a `RawPin` or a mapping holds it.
#[derive(Debug)]
pub struct PinState<T: ?Sized = dyn SourcePin> {
    /// The live mapping's type, or one of the values below.
    mapped: AtomicU32,
    pub(crate) range: T,
}

/// The value of `PinState::mapped` while there is no mapping.
const NOT_MAPPED: u32 = 0;
/// The value of `PinState::mapped` while a mapping is being made.
const BEING_MAPPED: u32 = u32::MAX;

impl<T: SourcePin + 'static> PinState<T> {
    /// A pin that the driver has just made. Without memory for it, it is dropped, and so unpinned.
    pub fn of_range(range: T) -> Result<Arc<PinState>> {
        let pinned = heap::shared(PinState { mapped: AtomicU32::new(NOT_MAPPED), range })?;
        Ok(pinned)
    }
}

impl PinState {
    /// The type of its live mapping.
    pub(crate) fn mapping_type(&self) -> Option<MappingType> {
        raw::mapping_type(self.mapped.load(Ordering::Acquire))
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.load(Ordering::Acquire) != NOT_MAPPED
    }
}

/// Marks a pin as mapped as long as it exists, and keeps the pin.
#[derive(Debug)]
pub(crate) struct MappingGuard(Arc<PinState>);

impl MappingGuard {
    /// Sets the mark on a pin that has none.
    pub(crate) fn set(pinned: &Arc<PinState>) -> Result<MappingGuard> {
        let marked = pinned.mapped.compare_exchange(NOT_MAPPED, BEING_MAPPED, Ordering::AcqRel, Ordering::Acquire);
        if marked.is_err() {
            return Err(Error::AlreadyMapped);
        }
        Ok(MappingGuard(Arc::clone(pinned)))
    }

    /// The mapping is made, and of this type.
    pub(crate) fn set_type(&self, mapping_type: MappingType) {
        self.0.mapped.store(mapping_type as u32, Ordering::Release);
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        self.0.mapped.store(NOT_MAPPED, Ordering::Release);
    }
}
