//! The objects that handles stand for.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use gdrcopy_core::{RawGdr, RawMapping, RawPin};

use crate::error::{Error, Result};
use crate::slots::{Slot, state};

/// The object of a `gdr_t`, an open driver and the handles of its pins.
#[derive(Debug)]
pub(crate) struct GdrEntry {
    pub(crate) gdr: RawGdr,
    pub(crate) pins: BTreeSet<usize>,
    /// True if buffers that do not start a page can be mapped.
    pub(crate) allow_unaligned_map: bool,
}

/// The object of a `gdr_mh_t`, a pin, its mapping while it has one, and the handle of its `gdr_t`.
#[derive(Debug)]
pub(crate) struct PinEntry {
    // Dropped in this order, unmapped first, then unpinned.
    pub(crate) mapping: Option<RawMapping>,
    pub(crate) pin: RawPin,
    pub(crate) gdr: usize,
    /// The size that gdr_map was called with.
    pub(crate) mapped_size: usize,
}

/// The objects of handles.
#[derive(Debug)]
pub(crate) enum Object {
    Gdr(GdrEntry),
    Pin(PinEntry),
}

/// One kind of object.
pub(crate) trait Kind: Sized {
    /// The state of a slot while it is a live handle of such an object.
    const STATE: u32;
    /// The argument's name in errors.
    const ARGUMENT: &'static str;

    fn into_object(self) -> Object;
    fn from_object(object: Object) -> Option<Self>;
    fn of(object: &mut Object) -> Option<&mut Self>;
    /// Writes what C programs look for into the slot.
    fn show(&self, slot: &Slot);
}

impl Kind for GdrEntry {
    const STATE: u32 = state::GDR;
    const ARGUMENT: &'static str = "g";

    fn into_object(self) -> Object {
        Object::Gdr(self)
    }

    fn from_object(object: Object) -> Option<GdrEntry> {
        match object {
            Object::Gdr(gdr) => Some(gdr),
            Object::Pin(_) => None,
        }
    }

    fn of(object: &mut Object) -> Option<&mut GdrEntry> {
        match object {
            Object::Gdr(gdr) => Some(gdr),
            Object::Pin(_) => None,
        }
    }

    fn show(&self, slot: &Slot) {
        slot.show_gdr(0);
        slot.show_file(self.gdr.file());
    }
}

impl Kind for PinEntry {
    const STATE: u32 = state::PIN;
    const ARGUMENT: &'static str = "handle";

    fn into_object(self) -> Object {
        Object::Pin(self)
    }

    fn from_object(object: Object) -> Option<PinEntry> {
        match object {
            Object::Pin(pin) => Some(pin),
            Object::Gdr(_) => None,
        }
    }

    fn of(object: &mut Object) -> Option<&mut PinEntry> {
        match object {
            Object::Pin(pin) => Some(pin),
            Object::Gdr(_) => None,
        }
    }

    fn show(&self, slot: &Slot) {
        slot.show_gdr(self.gdr);
        slot.show_file(self.pin.file());
        slot.show_driver_handle(self.pin.driver_handle());
    }
}

impl PinEntry {
    pub(crate) fn check_gdr(&self, g: usize) -> Result<()> {
        if self.gdr == g { Ok(()) } else { Err(Error::ForeignPin) }
    }

    /// Unmaps it; an error leaves it mapped.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        let ended = self.end_mapping(RawMapping::unmap)?;
        ended.ok_or(Error::NotMapped)
    }

    /// Removes the mapping if there is one, then unpins. After an error it is still pinned; and still mapped,
    /// if the mapping could not be removed.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.end_mapping(RawMapping::retire)?;
        Ok(self.pin.release()?)
    }

    /// Ends the mapping, if there is one, by calling `end`; an error leaves it mapped.
    fn end_mapping(
        &mut self,
        end: fn(RawMapping) -> std::result::Result<(), (RawMapping, gdrcopy_core::Error)>,
    ) -> Result<Option<()>> {
        let Some(mapping) = self.mapping.take() else {
            return Ok(None);
        };
        end(mapping).map(Some).map_err(|(mapping, error)| {
            self.mapping = Some(mapping);
            error.into()
        })
    }
}
