//! The objects that handles stand for, which are open drivers and pins.
#![forbid(unsafe_code)]

use gdrcopy_core::sync::Mutex;
use gdrcopy_core::{RawGdr, RawMapping, RawPin};

use crate::error::{Error, Result};
use crate::slots::{Slot, state};

/// The object of a `gdr_t`, an open driver.
#[derive(Debug)]
pub(crate) struct GdrEntry {
    pub(crate) gdr: RawGdr,
    /// True if buffers that do not start at a page boundary can be mapped.
    pub(crate) allow_unaligned_map: bool,
}

/// A pin, for which a `gdr_mh_t` stands. `gdr` is the `gdr_t` with which it was pinned.
#[derive(Debug)]
pub(crate) struct PinEntry {
    // The fields are dropped in this order, which unmaps first, and then unpins.
    pub(crate) mapping: Option<RawMapping>,
    pub(crate) pin: RawPin,
    pub(crate) gdr: usize,
    /// A copy of [`GdrEntry::allow_unaligned_map`].
    pub(crate) allow_unaligned_map: bool,
}

/// An object with its handle. It is locked during mmap and munmap, so a program's hooks of these cannot use the handle.
pub(crate) type Place<T> = Mutex<Option<(usize, T)>>;

/// Room for one object, either an open driver or a pin.
#[derive(Default)]
pub(crate) struct Holder {
    gdr: Place<GdrEntry>,
    pin: Place<PinEntry>,
}

/// A kind of object that handles stand for.
pub(crate) trait Kind: Sized + 'static {
    /// The state of a slot while it is a live handle of such an object.
    const STATE: u32;
    /// The name of the C functions' parameter that takes a handle of such an object. Error messages contain it.
    const ARGUMENT: &'static str;

    /// Returns the field of `holder` that has room for an object of this kind.
    fn place(holder: &Holder) -> &Place<Self>;
    /// Returns the handle of the pin's `gdr_t`; 0 if the object is not a pin.
    fn gdr(&self) -> usize;
    /// Writes the values that C programs and forked children read from the slot.
    fn show(&self, slot: &Slot);
}

impl Kind for GdrEntry {
    const STATE: u32 = state::GDR;
    const ARGUMENT: &'static str = "g";

    fn place(holder: &Holder) -> &Place<GdrEntry> {
        &holder.gdr
    }

    fn gdr(&self) -> usize {
        0
    }

    fn show(&self, slot: &Slot) {
        slot.show(0, self.gdr.file(), 0);
    }
}

impl Kind for PinEntry {
    const STATE: u32 = state::PIN;
    const ARGUMENT: &'static str = "handle";

    fn place(holder: &Holder) -> &Place<PinEntry> {
        &holder.pin
    }

    fn gdr(&self) -> usize {
        self.gdr
    }

    fn show(&self, slot: &Slot) {
        slot.show(self.gdr, self.pin.file(), self.pin.driver_handle());
    }
}

impl PinEntry {
    pub(crate) fn check_gdr(&self, g: usize) -> Result<()> {
        if self.gdr == g { Ok(()) } else { Err(Error::ForeignPin) }
    }

    /// Calls `remove` for the mapping if there is one, and makes copies fail. If `remove` fails, nothing has changed.
    pub(crate) fn remove_mapping(
        &mut self,
        slot: &Slot,
        remove: fn(RawMapping) -> std::result::Result<(), (RawMapping, gdrcopy_core::Error)>,
    ) -> Result<()> {
        let Some(mapping) = self.mapping.take() else {
            return Ok(());
        };
        slot.show_mapping(None);
        let Err((mapping, error)) = remove(mapping) else {
            return Ok(());
        };
        slot.show_mapping(Some(mapping.mapping_type()));
        self.mapping = Some(mapping);
        Err(error.into())
    }

    /// Removes the mapping if there is one, then unpins the buffer. After an error, the buffer is still pinned, and
    /// also mapped if the mapping could not be removed.
    pub(crate) fn release(&mut self, slot: &Slot) -> Result<()> {
        self.remove_mapping(slot, RawMapping::retire)?;
        Ok(self.pin.release()?)
    }
}
