//! The handles of the C API: addresses of slots, in memory that stays readable while the library is loaded.
//!
//! C programs can pass any number as a handle. A handle is live if it lies in our range, at a multiple
//! of the slot size, and its slot says so: no lock, no hash, and nothing outside our own memory is ever
//! read (`slots`).
//!
//! A slot points to a [`Holder`], which owns the object. Holders are reused at once, so the object in them is
//! stored with its handle: that way a stale handle is detected.

use std::{ptr, slice};

use gdrcopy_core::error::no_memory;
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::fork::{self, AddressRange, PerProcess};
use gdrcopy_core::types::MappingType;
use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::objects::{Kind, Object};
use crate::slots::{Arena, Slot, state};

/// Whether there is a slot of this process at this address.
#[inline(always)]
fn is_slot(handle: usize) -> bool {
    let in_range = fork::page().is_some_and(|page| page.handles.contains(handle));
    in_range && handle.is_multiple_of(size_of::<Slot>())
}

/// The slot at this address.
///
/// # Safety
/// [`is_slot`] returned true for it.
#[inline(always)]
unsafe fn slot_at(handle: usize) -> &'static Slot {
    // SAFETY: the address is a multiple of the slot size in the range of committed slots, which stays
    // readable while the library is loaded; a Slot consists of atomics, valid whatever they hold.
    unsafe { &*ptr::with_exposed_provenance::<Slot>(handle) }
}

/// The slot at this address, if there is one of this process.
fn slot(handle: usize) -> Option<&'static Slot> {
    // SAFETY: `is_slot` returned true.
    is_slot(handle).then(|| unsafe { slot_at(handle) })
}

/// How the pin with this handle is mapped; `None` for everything that is not a mapped pin of this process.
#[inline(always)]
pub(crate) fn mapping_type(handle: usize) -> Option<MappingType> {
    if !is_slot(handle) {
        return None;
    }
    // Not through `slot`, whose Option costs a test for a handle of 0, which is in no range.
    // SAFETY: `is_slot` returned true.
    unsafe { slot_at(handle) }.mapping_type()
}

/// Why [`mapping_type`] returned `None`.
#[cold]
pub(crate) fn why_not_mapped(handle: usize) -> Error {
    match slot(handle).map(Slot::state) {
        Some(state::PIN) => Error::NotMapped,
        _ => why_unknown("handle", handle),
    }
}

/// What is wrong with the argument `name`, which is not the handle it should be.
#[cold]
fn why_unknown(name: &'static str, handle: usize) -> Error {
    if inherited(handle).is_some_and(|(slot, _)| slot.is_live()) {
        gdrcopy_core::Error::ForkedChild.into()
    } else {
        Error::UnknownHandle(name)
    }
}

/// Holds an object together with its handle.
#[derive(Default)]
pub(crate) struct Holder(Mutex<Option<(usize, Object)>>);

/// The handles of one process.
pub(crate) struct Table {
    /// Handle memory of the processes that this one was forked off from.
    inherited: Vec<std::ops::Range<usize>>,
    /// The same range as in the process's page, readable where that was wiped.
    range: AddressRange,
    state: Mutex<State>,
}

/// What is needed to hand out handles.
#[derive(Default)]
struct State {
    arena: Option<Arena>,
    /// All holders. They stay in place until the library is unloaded, since callers with a stale handle
    /// may look at them at any time.
    #[expect(clippy::vec_box, reason = "slots point to them")]
    holders: Vec<Box<Holder>>,
    /// Addresses of those that hold nothing.
    spare: Vec<usize>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

impl Table {
    /// This process's table, made now if need be. All it takes over from a parent process are the address
    /// ranges of the parent's handles.
    pub(crate) fn enter() -> Result<&'static Table> {
        fork::enter()?;
        Ok(TABLE.get(|parent| Table {
            inherited: parent.map_or_else(Vec::new, Table::all_ranges),
            range: AddressRange::default(),
            state: Mutex::default(),
        }))
    }

    fn all_ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges = self.inherited.clone();
        ranges.push(self.range.bounds());
        ranges
    }

    /// The part of a parent process's handle memory that the address lies in.
    fn inherited_range(handle: usize) -> Option<std::ops::Range<usize>> {
        let (table, is_own) = TABLE.look()?;
        if !is_own && table.range.contains(handle) {
            return Some(table.range.bounds());
        }
        let mut inherited = table.inherited.iter();
        inherited.find(|range| range.contains(&handle)).cloned()
    }

    /// Gives the object a handle.
    pub(crate) fn insert<T: Kind>(&self, object: T) -> Result<usize> {
        let (slot, holder) = self.take_slot()?;
        let handle = ptr::from_ref(slot).expose_provenance();
        object.show(slot);
        // SAFETY: the address of a holder in `State::holders`; they live as long as the table.
        let place = unsafe { &*ptr::with_exposed_provenance::<Holder>(holder) };
        *place.0.lock() = Some((handle, object.into_object()));
        slot.publish(T::STATE, holder);
        Ok(handle)
    }

    /// A free slot and the address of a free holder.
    fn take_slot(&self) -> Result<(&'static Slot, usize)> {
        let mut state = self.state.lock();
        if state.arena.is_none() {
            state.arena = Some(Arena::reserve().map_err(no_memory)?);
        }
        let publish = |base, len| {
            self.range.set(base, len);
            if let Some(page) = fork::page() {
                page.handles.set(base, len);
            }
        };
        if state.spare.is_empty() {
            // Room for all holders, this one too: giving one back takes no memory.
            let all = state.holders.len() + 1;
            let room = state.holders.try_reserve(1);
            room.and_then(|()| state.spare.try_reserve(all)).map_err(|_| no_memory(Errno::ENOMEM))?;
        }
        let arena = state.arena.as_mut().map(|arena| arena.take(publish));
        let slot = arena.transpose().map_err(no_memory)?.flatten();
        let slot = slot.ok_or(no_memory(Errno::ENOMEM))?;
        let holder = state.spare.pop().unwrap_or_else(|| {
            let holder = Box::<Holder>::default();
            let address = ptr::from_ref(&*holder).expose_provenance();
            state.holders.push(holder);
            address
        });
        Ok((slot, holder))
    }

    /// Takes back a slot that was cleared, and its empty holder.
    fn give_back(&self, slot: &'static Slot, holder: &Holder) {
        let mut state = self.state.lock();
        state.spare.push(ptr::from_ref(holder).expose_provenance());
        if let Some(arena) = &mut state.arena {
            arena.give_back(ptr::from_ref(slot).addr());
        }
    }
}

/// The slot and the holder of this handle. Callers must check that the holder still belongs to the handle.
fn find<T: Kind>(handle: usize) -> Result<(&'static Slot, &'static Holder)> {
    let slot = slot(handle).filter(|slot| slot.is_live());
    let holder = slot.map_or(0, Slot::holder);
    // SAFETY: 0, or the address of a holder of the table, which `insert` published.
    let holder = unsafe { ptr::with_exposed_provenance::<Holder>(holder).as_ref() };
    slot.zip(holder).ok_or_else(|| why_unknown(T::ARGUMENT, handle))
}

/// The object in a holder, if it is of this kind and has this handle.
fn object_of<T: Kind>(place: &mut Option<(usize, Object)>, handle: usize) -> Result<&mut T> {
    let object = place.as_mut().filter(|(owner, _)| *owner == handle);
    object.and_then(|(_, object)| T::of(object)).ok_or_else(|| why_unknown(T::ARGUMENT, handle))
}

/// Works on the object with this handle; other callers with the same handle wait.
pub(crate) fn with<T: Kind, R>(handle: usize, work: impl FnOnce(&mut T, &Slot) -> Result<R>) -> Result<R> {
    let (slot, holder) = find::<T>(handle)?;
    let mut place = holder.0.lock();
    work(object_of(&mut place, handle)?, slot)
}

/// Ends the object with this handle by `end`, after `work` on it; the handle is stale from then on. If `work` fails, the
/// object stays.
pub(crate) fn end<T: Kind, R>(
    handle: usize,
    work: impl FnOnce(&mut T, &Slot) -> Result<()>,
    end: impl FnOnce(T) -> R,
) -> Result<R> {
    let (slot, holder) = find::<T>(handle)?;
    let mut place = holder.0.lock();
    work(object_of(&mut place, handle)?, slot)?;
    // Until the object has ended, a child that is forked off can close its copies of the descriptors.
    slot.show_ending();
    let object = place.take();
    drop(place);
    let object = object.and_then(|(_, object)| T::from_object(object));
    let result = object.map(end).ok_or(Error::UnknownHandle(T::ARGUMENT));
    slot.clear();
    if let Some(table) = TABLE.current() {
        table.give_back(slot, holder);
    }
    result
}

/// The slot at this address in a parent process's handle memory, and all slots there. A forked child has a copy of it.
fn inherited(handle: usize) -> Option<(&'static Slot, &'static [Slot])> {
    let range = Table::inherited_range(handle)?;
    let first = ptr::with_exposed_provenance::<Slot>(range.start);
    let offset = handle - range.start;
    if !offset.is_multiple_of(size_of::<Slot>()) {
        return None;
    }
    // SAFETY: committed slots of a process that this one was forked off from, which stay readable and writable while the
    // library is loaded; a Slot consists of atomics, valid whatever they hold.
    let all = unsafe { slice::from_raw_parts(first, range.len() / size_of::<Slot>()) };
    Some((&all[offset / size_of::<Slot>()], all))
}

/// In a forked child: closes the descriptors of the parent's `gdr_t` that have this handle, and forgets it and its pins.
/// Returns whether there is one. Nothing that may have been locked at the fork is touched.
pub(crate) fn close_inherited(g: usize) -> bool {
    let Some((slot, all)) = inherited(g) else {
        return false;
    };
    // Of several threads, one gets it.
    if !(slot.take(state::GDR) || slot.gdr() == 0 && slot.take(state::ENDING)) {
        return false;
    }
    let is_pin = |pin: &&Slot| pin.is_live() && pin.gdr() == g;
    for slot in all.iter().filter(is_pin).chain([slot]) {
        if let Some(file) = slot.file() {
            file.close_inherited();
        }
        slot.clear();
    }
    true
}

/// Frees the table and all handle memory if no handle is live, when the library is unloaded; returns
/// whether it did. If anything is still open, its handle may be used later, so everything stays.
///
/// # Safety
/// Where `is_idle`, called after the table has become unreachable, returns true, no thread is inside a
/// function of this module.
pub(crate) unsafe fn unload(is_idle: impl Fn() -> bool) -> bool {
    let mut freed = false;
    let may = |table: &Table| {
        let state = table.state.try_lock();
        let is_empty = |arena: &Arena| arena.is_empty();
        freed = is_idle() && state.is_some_and(|state| state.arena.as_ref().is_none_or(is_empty));
        if freed && let Some(page) = fork::page() {
            page.handles.set(0, 0);
        }
        freed
    };
    // SAFETY: references to the table are used inside functions of this module, so by contract there are none.
    unsafe { TABLE.free(may) };
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{GdrEntry, PinEntry};

    #[test]
    fn forged_handle_is_refused() {
        Table::enter().expect("memory");
        for forged in [0, 1, 8, 128, 4096, usize::MAX, usize::MAX - 127, &raw const TABLE as usize] {
            assert!(mapping_type(forged).is_none());
            let found = with::<PinEntry, _>(forged, |_, _| Ok(()));
            assert_eq!(found, Err(Error::UnknownHandle("handle")));
            let found = with::<GdrEntry, _>(forged, |_, _| Ok(()));
            assert_eq!(found, Err(Error::UnknownHandle("g")));
        }
    }
}
