//! What a pin and its mapping share: the driver's pin, and whether it is mapped.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::PinnedRange;
use crate::error::{Error, Result};
use crate::types::MappingType;

/// A pin of the driver's, which lasts until nobody holds it any more.
#[derive(Debug)]
pub(crate) struct Pinned {
    range: Box<dyn PinnedRange>,
    /// The live mapping's type; `None` while there is no mapping.
    mapped: AtomicU32,
}

/// In `Pinned::mapped` while a mapping is being made.
const IN_THE_MAKING: u32 = u32::MAX;

impl Pinned {
    pub(crate) fn new(range: Box<dyn PinnedRange>) -> Arc<Pinned> {
        let mapped = AtomicU32::new(MappingType::None as u32);
        Arc::new(Pinned { range, mapped })
    }

    pub(crate) fn range(&self) -> &dyn PinnedRange {
        &*self.range
    }

    pub(crate) fn into_range(self) -> Box<dyn PinnedRange> {
        self.range
    }

    /// How it is mapped now.
    pub(crate) fn mapping_type(&self) -> MappingType {
        let mapped = self.mapped.load(Ordering::Acquire);
        MappingType::from_raw(mapped).unwrap_or(MappingType::None)
    }
}

/// Marks a pin as mapped as long as it exists, and keeps the pin.
#[derive(Debug)]
pub(crate) struct MappedMark(Arc<Pinned>);

impl MappedMark {
    /// Sets the mark on a pin that has none.
    pub(crate) fn set(pinned: &Arc<Pinned>) -> Result<MappedMark> {
        let none = MappingType::None as u32;
        pinned
            .mapped
            .compare_exchange(none, IN_THE_MAKING, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| MappedMark(Arc::clone(pinned)))
            .map_err(|_| Error::AlreadyMapped)
    }

    /// The mapping is made, and of this type.
    pub(crate) fn made(&self, kind: MappingType) {
        self.0.mapped.store(kind as u32, Ordering::Release);
    }
}

impl Drop for MappedMark {
    fn drop(&mut self) {
        self.made(MappingType::None);
    }
}
