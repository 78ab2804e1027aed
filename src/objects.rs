//! The objects that handles stand for.
#![forbid(unsafe_code)]

use std::ptr;

use gdrcopy_core::error::no_memory;
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::{RawGdr, RawMapping, RawPin};
use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::slots::{Slot, state};

/// The object of a `gdr_t`, an open driver and the handles of its pins.
#[derive(Debug)]
pub(crate) struct GdrEntry {
    pub(crate) gdr: RawGdr,
    pub(crate) pins: Pins,
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
    /// As its `gdr_t` has it.
    pub(crate) allow_unaligned_map: bool,
    /// The size that gdr_map was called with.
    pub(crate) mapped_size: usize,
}

/// An object with its handle.
pub(crate) type Place<T> = Mutex<Option<(usize, T)>>;

/// Room for one object of either kind.
#[derive(Default)]
pub(crate) struct Holder {
    gdr: Place<GdrEntry>,
    pin: Place<PinEntry>,
}

/// One kind of object.
pub(crate) trait Kind: Sized + 'static {
    /// The state of a slot while it is a live handle of such an object.
    const STATE: u32;
    /// The argument's name in errors.
    const ARGUMENT: &'static str;

    /// Where a holder has such an object.
    fn place(holder: &Holder) -> &Place<Self>;
    /// Writes what C programs look for into the slot.
    fn show(&self, slot: &Slot);
}

impl Kind for GdrEntry {
    const STATE: u32 = state::GDR;
    const ARGUMENT: &'static str = "g";

    fn place(holder: &Holder) -> &Place<GdrEntry> {
        &holder.gdr
    }

    fn show(&self, slot: &Slot) {
        slot.show_gdr(0);
        slot.show_file(self.gdr.file());
    }
}

impl Kind for PinEntry {
    const STATE: u32 = state::PIN;
    const ARGUMENT: &'static str = "handle";

    fn place(holder: &Holder) -> &Place<PinEntry> {
        &holder.pin
    }

    fn show(&self, slot: &Slot) {
        slot.show_gdr(self.gdr);
        slot.show_file(self.pin.file());
        slot.show_driver_handle(self.pin.driver_handle());
    }
}

/// Handles of pins. Each shows its index, so that removing one takes no search.
#[derive(Debug, Default)]
pub(crate) struct Pins(Vec<&'static Slot>);

impl Pins {
    /// Makes room for another.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        self.0.try_reserve(1).map_err(|_| no_memory(Errno::ENOMEM))?;
        Ok(())
    }

    pub(crate) fn add(&mut self, pin: &'static Slot) {
        pin.show_index(self.0.len());
        self.0.push(pin);
    }

    /// Removes a pin, unless it was added to those of another `gdr_t`, which had the same handle.
    pub(crate) fn remove(&mut self, pin: &Slot) {
        let index = pin.index();
        match self.0.get(index) {
            Some(shown) if ptr::eq(*shown, pin) => self.0.swap_remove(index),
            _ => return,
        };
        if let Some(moved) = self.0.get(index) {
            moved.show_index(index);
        }
    }

    pub(crate) fn into_slots(self) -> Vec<&'static Slot> {
        self.0
    }
}

impl PinEntry {
    pub(crate) fn check_gdr(&self, g: usize) -> Result<()> {
        if self.gdr == g { Ok(()) } else { Err(Error::ForeignPin) }
    }

    /// Unmaps it; an error leaves it mapped.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        let Some(mapping) = self.mapping.take() else {
            return Err(Error::NotMapped);
        };
        self.keep_failed(mapping.unmap())
    }

    /// Removes the mapping if there is one, then unpins. After an error it is still pinned; and still mapped,
    /// if the mapping could not be removed.
    pub(crate) fn release(&mut self) -> Result<()> {
        if let Some(mapping) = self.mapping.take() {
            self.keep_failed(mapping.retire())?;
        }
        Ok(self.pin.release()?)
    }

    /// Puts a mapping that could not be removed back.
    fn keep_failed(&mut self, result: std::result::Result<(), (RawMapping, gdrcopy_core::Error)>) -> Result<()> {
        let Err((mapping, error)) = result else {
            return Ok(());
        };
        self.mapping = Some(mapping);
        Err(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;
    use crate::slots::Arena;

    #[test]
    fn pins_are_removed_once_from_any_place() {
        let mut arena = Arena::reserve().expect("address space");
        let slots: [_; 4] = array::from_fn(|_| arena.take(|_, _| ()).expect("memory"));
        let mut pins = Pins::default();
        for slot in slots {
            pins.add(slot);
        }
        for (count, removed) in [1, 0, 3, 2].into_iter().enumerate() {
            pins.remove(slots[removed]);
            pins.remove(slots[removed]);
            assert_eq!(pins.0.len(), 3 - count);
            assert!(!pins.0.iter().any(|slot| ptr::eq(*slot, slots[removed])));
        }
    }
}
