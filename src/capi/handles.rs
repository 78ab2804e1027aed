//! The handles of the C API: addresses of slots, in memory that is never given back.
//!
//! C programs hand us any number as a handle. A handle is live if it lies in one of our ranges, at a
//! multiple of the slot size, and its slot says so: no lock, no hash, and nothing outside our own
//! memory is ever read (`slots`).
//!
//! Behind a slot stands a [`Cell`], which owns the object. Cells live for ever too and are used again
//! at once; the object in them remembers its handle, so that a late caller finds it is not his.

use std::any::Any;
use std::hint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;

use crate::capi::slots::{Arena, Slot, state};
use crate::error::{Error, Result};
use crate::process::{self, MAX_RANGES, Range};
use crate::sync::Mutex;
use crate::types::MappingType;

/// The slot at this address, if it is one of this process's.
#[inline(always)]
fn slot(handle: usize) -> Option<&'static Slot> {
    let page = process::page()?;
    let is_ours = page.handles[0].contains(handle) || in_later_range(&page.handles, handle);
    if !is_ours || !handle.is_multiple_of(size_of::<Slot>()) {
        return None;
    }
    // SAFETY: the address is a multiple of the slot size in a range of committed slots that stays
    // readable for the life of the process; a Slot is made of atomics, valid whatever they hold. No
    // range holds address 0: said here, it need not be tested again.
    unsafe {
        hint::assert_unchecked(handle != 0);
        Some(&*ptr::with_exposed_provenance::<Slot>(handle))
    }
}

#[cold]
fn in_later_range(ranges: &[Range], handle: usize) -> bool {
    ranges[1..].iter().any(|range| range.contains(handle))
}

/// How the pin with this handle is mapped; `None` for all that is not a mapped pin of this process.
#[inline(always)]
pub(super) fn mapping_type(handle: usize) -> Option<MappingType> {
    slot(handle)?.mapping_type()
}

/// Why [`mapping_type`] said no.
#[cold]
pub(super) fn why_not_mapped(handle: usize) -> Error {
    match slot(handle).map(Slot::state) {
        Some(state::PIN) => Error::NotMapped,
        _ => why_unknown("handle", handle),
    }
}

/// What is wrong with the argument `name`, which is not the handle it should be.
#[cold]
fn why_unknown(name: &'static str, handle: usize) -> Error {
    if Table::any().is_some_and(|table| table.is_inherited(handle)) {
        Error::ForkedChild
    } else {
        Error::UnknownHandle(name)
    }
}

/// An object that C programs hold a handle of.
pub(super) trait Object: Any + Send {
    /// What a slot says of itself while it is a live handle of such an object.
    const STATE: u32;
    /// What errors call the argument.
    const ARGUMENT: &'static str;

    /// Writes what C programs look for into the slot.
    fn show(&self, slot: &Slot);
}

/// Where an object lives, with the handle it answers to.
#[derive(Default)]
pub(super) struct Cell(Mutex<Option<(usize, Box<dyn Any + Send>)>>);

/// The handles of this process since it first opened a driver.
pub(super) struct Table {
    epoch: u64,
    /// Handle memory of the processes it was forked off from.
    inherited: Vec<std::ops::Range<usize>>,
    /// The same ranges as in the process's page, readable where that was wiped.
    ranges: [Range; MAX_RANGES],
    arenas: Mutex<Vec<Arena>>,
    /// Cells that wait for use.
    spare: Mutex<Vec<&'static Cell>>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

impl Table {
    /// The last table made by this process or an ancestor.
    fn any() -> Option<&'static Table> {
        // SAFETY: null, or a table that `enter` leaked.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }
    }

    /// This process's table, if it has opened anything.
    fn current() -> Option<&'static Table> {
        Table::any().filter(|table| table.epoch == process::epoch())
    }

    /// This process's table, made now if need be. Nothing is taken over from a parent but the
    /// knowledge which handles were its.
    pub(super) fn enter() -> Result<&'static Table> {
        process::enter().map_err(Error::OutOfHandles)?;
        loop {
            if let Some(table) = Table::current() {
                return Ok(table);
            }
            let parent = Table::any();
            let fresh = Box::into_raw(Box::new(Table {
                epoch: process::epoch(),
                inherited: parent.map_or_else(Vec::new, Table::all_ranges),
                ranges: Default::default(),
                arenas: Mutex::default(),
                spare: Mutex::default(),
            }));
            let expected =
                parent.map_or(ptr::null_mut(), |parent| ptr::from_ref(parent).cast_mut());
            if TABLE
                .compare_exchange(expected, fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: another thread was first; nobody has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    fn all_ranges(&self) -> Vec<std::ops::Range<usize>> {
        let own = self
            .ranges
            .iter()
            .map(Range::bounds)
            .filter(|range| !range.is_empty());
        self.inherited.iter().cloned().chain(own).collect()
    }

    /// Whether the address lies in handle memory of a parent process.
    fn is_inherited(&self, handle: usize) -> bool {
        if self.epoch == process::epoch() {
            self.inherited.iter().any(|range| range.contains(&handle))
        } else {
            self.all_ranges()
                .iter()
                .any(|range| range.contains(&handle))
        }
    }

    /// Gives the object a handle.
    pub(super) fn insert<T: Object>(&self, object: T) -> Result<usize> {
        let slot = self.take_slot()?;
        let handle = ptr::from_ref(slot).expose_provenance();
        let spare = self.spare.lock().pop();
        let cell = spare.unwrap_or_else(|| Box::leak(Box::default()));
        object.show(slot);
        *cell.0.lock() = Some((handle, Box::new(object)));
        slot.publish(T::STATE, ptr::from_ref(cell).expose_provenance());
        Ok(handle)
    }

    fn take_slot(&self) -> Result<&'static Slot> {
        let mut arenas = self.arenas.lock();
        if let Some(slot) = self.take_from_last(&mut arenas)? {
            return Ok(slot);
        }
        if arenas.len() == MAX_RANGES {
            return Err(Error::OutOfHandles(Errno::ENOMEM));
        }
        arenas.push(Arena::reserve().map_err(Error::OutOfHandles)?);
        self.take_from_last(&mut arenas)?
            .ok_or(Error::OutOfHandles(Errno::ENOMEM))
    }

    fn take_from_last(&self, arenas: &mut [Arena]) -> Result<Option<&'static Slot>> {
        let index = arenas.len().wrapping_sub(1);
        let Some(arena) = arenas.last_mut() else {
            return Ok(None);
        };
        let publish = |base, len| {
            self.ranges[index].set(base, len);
            if let Some(page) = process::page() {
                page.handles[index].set(base, len);
            }
        };
        arena.take(publish).map_err(Error::OutOfHandles)
    }

    fn give_back(&self, slot: &'static Slot) {
        let address = ptr::from_ref(slot).addr();
        let mut arenas = self.arenas.lock();
        if let Some(arena) = arenas.iter_mut().find(|arena| arena.contains(address)) {
            arena.give_back(address);
        }
    }
}

/// The slot and the cell behind this handle. Whether the cell is still the handle's, it says itself.
fn find<T: Object>(handle: usize) -> Result<(&'static Slot, &'static Cell)> {
    let slot = slot(handle).filter(|slot| slot.is_live());
    let cell = slot.map_or(0, Slot::cell);
    // SAFETY: 0, or the address of a leaked cell, which `insert` published.
    let cell = unsafe { ptr::with_exposed_provenance::<Cell>(cell).as_ref() };
    slot.zip(cell)
        .ok_or_else(|| why_unknown(T::ARGUMENT, handle))
}

/// Works on the object with this handle; other callers with the same handle wait.
pub(super) fn with<T: Object, R>(
    handle: usize,
    work: impl FnOnce(&mut T, &Slot) -> Result<R>,
) -> Result<R> {
    let (slot, cell) = find::<T>(handle)?;
    if let Some((owner, object)) = &mut *cell.0.lock()
        && *owner == handle
        && let Some(object) = object.downcast_mut()
    {
        return work(object, slot);
    }
    Err(why_unknown(T::ARGUMENT, handle))
}

/// Takes the object with this handle out, if `may` agrees; the handle is stale from then on.
pub(super) fn take<T: Object>(handle: usize, may: impl FnOnce(&T) -> Result<()>) -> Result<T> {
    let (slot, cell) = find::<T>(handle)?;
    let object = {
        let mut occupant = cell.0.lock();
        match &*occupant {
            Some((owner, object)) if *owner == handle && object.is::<T>() => {
                object.downcast_ref().map_or(Ok(()), may)?;
            }
            _ => return Err(why_unknown(T::ARGUMENT, handle)),
        }
        slot.clear();
        occupant.take()
    };
    if let Some(table) = Table::current() {
        table.spare.lock().push(cell);
        table.give_back(slot);
    }
    let object = object.and_then(|(_, object)| object.downcast().ok());
    object
        .map(|object| *object)
        .ok_or(Error::UnknownHandle(T::ARGUMENT))
}

/// Gives the handle memory back when the library is unloaded with everything closed. Where something
/// is still open, nobody can tell who uses it: it stays.
extern "C" fn unload() {
    let Some(table) = Table::current() else {
        return;
    };
    // At the end of a process other threads may be on their way through here: then leave all be.
    let Some(mut arenas) = table.arenas.try_lock() else {
        return;
    };
    if !arenas.iter().all(Arena::is_empty) {
        return;
    }
    for (index, arena) in arenas.drain(..).enumerate() {
        table.ranges[index].set(arena.base(), 0);
        if let Some(page) = process::page() {
            page.handles[index].set(arena.base(), 0);
        }
    }
}

// The section holds pointers to functions of this type; the loader calls them at dlclose and at exit.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = unload;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::objects::{OpenGdr, PinnedBuffer};

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        Table::enter().expect("memory");
        for forged in [
            0,
            1,
            8,
            128,
            4096,
            usize::MAX,
            usize::MAX - 127,
            &raw const TABLE as usize,
        ] {
            assert!(mapping_type(forged).is_none());
            let found = with::<PinnedBuffer, _>(forged, |_, _| Ok(()));
            assert_eq!(found, Err(Error::UnknownHandle("handle")));
            let found = with::<OpenGdr, _>(forged, |_, _| Ok(()));
            assert_eq!(found, Err(Error::UnknownHandle("g")));
        }
    }
}
