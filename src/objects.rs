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
    /// Each shows its index, so that removing one takes no search.
    pub(crate) pins: Vec<&'static Slot>,
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

impl GdrEntry {
    /// Makes room for another pin.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        self.pins.try_reserve(1).map_err(|_| no_memory(Errno::ENOMEM))?;
        Ok(())
    }

    pub(crate) fn add(&mut self, pin: &'static Slot) {
        pin.show_index(self.pins.len());
        self.pins.push(pin);
    }

    /// Removes a pin, unless this is another `gdr_t` than the one that it was added to, with the same handle.
    pub(crate) fn remove(&mut self, pin: &Slot) {
        let index = pin.index();
        match self.pins.get(index) {
            Some(shown) if ptr::eq(*shown, pin) => self.pins.swap_remove(index),
            _ => return,
        };
        if let Some(moved) = self.pins.get(index) {
            moved.show_index(index);
        }
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
