//! What a pin and its mapping share: the driver's pin, and whether it is mapped.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::PinnedRange;
use crate::error::{Error, Result};
use crate::types::MappingType;

/// A pin of the driver, which lasts as long as a `Pin` or a mapping holds it.
#[derive(Debug)]
pub(crate) struct Pinned {
    range: Box<dyn PinnedRange>,
    /// The live mapping's type, or one of the values below.
    mapped: AtomicU32,
}

/// In `Pinned::mapped` while there is no mapping.
const NOT_MAPPED: u32 = 0;
/// In `Pinned::mapped` while a mapping is being made.
const BEING_MAPPED: u32 = u32::MAX;

impl Pinned {
    pub(crate) fn new(range: Box<dyn PinnedRange>) -> Arc<Pinned> {
        let mapped = AtomicU32::new(NOT_MAPPED);
        Arc::new(Pinned { range, mapped })
    }

    pub(crate) fn range(&self) -> &dyn PinnedRange {
        &*self.range
    }

    /// How it is mapped now.
    pub(crate) fn mapping_type(&self) -> Option<MappingType> {
        MappingType::from_raw(self.mapped.load(Ordering::Acquire))
    }
}

/// Marks a pin as mapped as long as it exists, and keeps the pin.
#[derive(Debug)]
pub(crate) struct MappedMark(Arc<Pinned>);

impl MappedMark {
    /// Sets the mark on a pin that has none.
    pub(crate) fn set(pinned: &Arc<Pinned>) -> Result<MappedMark> {
        let (acq_rel, acquire) = (Ordering::AcqRel, Ordering::Acquire);
        pinned
            .mapped
            .compare_exchange(NOT_MAPPED, BEING_MAPPED, acq_rel, acquire)
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
        self.0.mapped.store(NOT_MAPPED, Ordering::Release);
    }
}
