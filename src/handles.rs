//! The handles of the C API: addresses of slots, in memory that stays readable while the library is loaded.
//!
//! C programs can pass any number as a handle. A handle is live if it lies in our range, at a multiple
//! of the slot size, and its slot says so: no lock, no hash, and nothing outside our own memory is ever
//! read (`slots`).
//!
//! A slot points to a [`Holder`], which owns the object. Holders are reused at once, so the object in them is
//! stored with its handle. That detects a stale handle, and one of the other kind.

use std::marker::PhantomData;
use std::ops::Range;
use std::{ptr, slice};

use gdrcopy_core::error::no_memory;
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::fork::{self, AddressRange, PerProcess};
use gdrcopy_core::types::MappingType;
use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::objects::{Holder, Kind};
use crate::slots::{Arena, Slot, state};

/// Returns whether there is a slot of this process at this address.
#[inline(always)]
fn is_slot(handle: usize) -> bool {
    match fork::page() {
        Some(page) => page.handles.contains(handle) && handle.is_multiple_of(size_of::<Slot>()),
        None => false,
    }
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
    if !is_slot(handle) {
        return None;
    }
    // SAFETY: `is_slot` returned true.
    Some(unsafe { slot_at(handle) })
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
    match inherited(handle) {
        Some(inherited) if inherited.slot.is_live() => gdrcopy_core::Error::ForkedChild.into(),
        _ => Error::UnknownHandle(name),
    }
}

/// The handles of one process.
pub(crate) struct Table {
    /// Handle memory of the processes that this one was forked off from.
    inherited: Vec<Range<usize>>,
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
    /// Those that hold nothing.
    spare: Vec<&'static Holder>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

impl Table {
    /// This process's table, made now if need be. All it takes over from a parent process are the address
    /// ranges of the parent's handles.
    pub(crate) fn enter() -> Result<&'static Table> {
        fork::enter()?;
        Ok(TABLE.get(|parent| Table {
            inherited: parent.map(Table::all_ranges).unwrap_or_default(),
            range: AddressRange::default(),
            state: Mutex::default(),
        }))
    }

    fn all_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges = self.inherited.clone();
        ranges.push(self.range.bounds());
        ranges
    }

    /// The part of a parent process's handle memory that the address lies in.
    fn inherited_range(handle: usize) -> Option<Range<usize>> {
        let latest = TABLE.look()?;
        let table = latest.value;
        if !latest.is_own && table.range.contains(handle) {
            return Some(table.range.bounds());
        }
        table.inherited.iter().find(|range| range.contains(&handle)).cloned()
    }

    /// Gives the object a handle, and returns the slot that is it.
    pub(crate) fn insert<T: Kind>(&self, object: T) -> Result<&'static Slot> {
        let Free { slot, holder } = self.take_slot()?;
        object.show(slot);
        *T::place(holder).lock() = Some((slot.handle(), object));
        slot.publish(T::STATE, ptr::from_ref(holder).expose_provenance());
        Ok(slot)
    }

    fn take_slot(&self) -> Result<Free> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let arena = match &mut state.arena {
            Some(arena) => arena,
            none => none.insert(Arena::reserve().map_err(no_memory)?),
        };
        if state.spare.is_empty() {
            // Room for all holders, this one too: giving one back takes no memory.
            let holders = state.holders.len() + 1;
            state.holders.try_reserve(1).map_err(|_| no_memory(Errno::ENOMEM))?;
            state.spare.try_reserve(holders).map_err(|_| no_memory(Errno::ENOMEM))?;
        }
        let slot = arena.take(|base, len| self.publish(base, len)).map_err(no_memory)?;
        if let Some(holder) = state.spare.pop() {
            return Ok(Free { slot, holder });
        }
        let holder = Box::<Holder>::default();
        // SAFETY: the box stays in `State::holders` as long as the table, which `unload` frees when no one has a
        // reference to a holder.
        let kept = unsafe { &*ptr::from_ref(&*holder) };
        state.holders.push(holder);
        Ok(Free { slot, holder: kept })
    }

    /// Makes the range of handles known to those that read it without a lock.
    fn publish(&self, base: usize, len: usize) {
        self.range.set(base, len);
        if let Some(page) = fork::page() {
            page.handles.set(base, len);
        }
    }

    /// Returns whether no handle is live. Where another thread has it locked, one may be.
    fn is_empty(&self) -> bool {
        match self.state.try_lock() {
            Some(state) => match &state.arena {
                Some(arena) => arena.is_empty(),
                None => true,
            },
            None => false,
        }
    }

    /// Takes back a slot that was cleared, and its empty holder.
    fn give_back(&self, slot: &'static Slot, holder: &'static Holder) {
        let mut state = self.state.lock();
        state.spare.push(holder);
        if let Some(arena) = &mut state.arena {
            arena.give_back(slot.handle());
        }
    }
}

/// A free slot and a free holder.
struct Free {
    slot: &'static Slot,
    holder: &'static Holder,
}

/// A handle that was live when it was looked up. Its object may end at any time.
pub(crate) struct Handle<T: Kind> {
    slot: &'static Slot,
    holder: &'static Holder,
    kind: PhantomData<T>,
}

impl<T: Kind> Handle<T> {
    /// The live handle with this number.
    pub(crate) fn find(number: usize) -> Result<Handle<T>> {
        let Some(slot) = slot(number) else {
            return Err(why_unknown(T::ARGUMENT, number));
        };
        let holder = slot.holder();
        if !slot.is_live() || holder == 0 {
            return Err(why_unknown(T::ARGUMENT, number));
        }
        // SAFETY: the address of a holder of the table, which `insert` published.
        let holder = unsafe { &*ptr::with_exposed_provenance::<Holder>(holder) };
        Ok(Handle { slot, holder, kind: PhantomData })
    }

    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Works on the object; other callers with the same handle wait.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        work(self.object(&mut T::place(self.holder).lock())?)
    }

    /// The object in the holder, if that still belongs to the handle.
    fn object<'a>(&self, place: &'a mut Option<(usize, T)>) -> Result<&'a mut T> {
        match place {
            Some((handle, object)) if *handle == self.slot.handle() => Ok(object),
            _ => Err(why_unknown(T::ARGUMENT, self.slot.handle())),
        }
    }

    /// Ends the object by `end`, after `work` on it; the handle is stale from then on. If `work` fails, the object stays.
    pub(crate) fn end<R>(
        self,
        work: impl FnOnce(&mut T) -> Result<()>,
        end: impl FnOnce(T, &'static Slot) -> R,
    ) -> Result<R> {
        let mut entry = T::place(self.holder).lock();
        work(self.object(&mut entry)?)?;
        // Until the object has ended, a child that is forked off can close its copies of the descriptors.
        self.slot.show_ending();
        let ended = entry.take();
        drop(entry);
        let Some((_, object)) = ended else {
            return Err(Error::UnknownHandle(T::ARGUMENT));
        };
        let result = end(object, self.slot);
        self.slot.clear();
        if let Some(table) = TABLE.current() {
            table.give_back(self.slot, self.holder);
        }
        Ok(result)
    }
}

/// Fails, if `g` is not the live handle of an open driver.
#[cold]
pub(crate) fn check_gdr(g: usize) -> Result<()> {
    match slot(g) {
        Some(slot) if slot.state() == state::GDR => Ok(()),
        _ => Err(why_unknown("g", g)),
    }
}

/// A slot of a parent process, and all that lie in the same memory. A forked child has a copy of it.
struct Inherited {
    slot: &'static Slot,
    neighbors: &'static [Slot],
}

/// The slot at this address in a parent process's handle memory.
fn inherited(handle: usize) -> Option<Inherited> {
    let range = Table::inherited_range(handle)?;
    let first = ptr::with_exposed_provenance::<Slot>(range.start);
    let offset = handle - range.start;
    if !offset.is_multiple_of(size_of::<Slot>()) {
        return None;
    }
    // SAFETY: committed slots of a process that this one was forked off from, which stay readable and writable while the
    // library is loaded; a Slot consists of atomics, valid whatever they hold.
    let neighbors = unsafe { slice::from_raw_parts(first, range.len() / size_of::<Slot>()) };
    Some(Inherited { slot: &neighbors[offset / size_of::<Slot>()], neighbors })
}

/// In a forked child: closes the descriptors of the parent's `gdr_t` that have this handle, and forgets it and its pins.
/// Returns whether there is one. Nothing that may have been locked at the fork is touched.
pub(crate) fn close_inherited(g: usize) -> bool {
    let Some(Inherited { slot, neighbors }) = inherited(g) else {
        return false;
    };
    // Of several threads, one gets it.
    if !(slot.take(state::GDR) || slot.gdr() == 0 && slot.take(state::ENDING)) {
        return false;
    }
    for pin in neighbors {
        if pin.is_live() && pin.gdr() == g {
            forget_inherited(pin);
        }
    }
    forget_inherited(slot);
    true
}

fn forget_inherited(slot: &Slot) {
    if let Some(file) = slot.file() {
        file.close_inherited();
    }
    slot.clear();
}

/// Frees the table and all handle memory if no handle is live, when the library is unloaded; returns
/// whether it did. If anything is still open, its handle may be used later, so everything stays.
///
/// # Safety
/// Where `is_idle`, called after the table has become unreachable, returns true, no thread is inside a
/// function of this module.
pub(crate) unsafe fn unload(is_idle: impl Fn() -> bool) -> bool {
    let mut freed = false;
    // SAFETY: references to the table are used inside functions of this module, so by contract there are none.
    unsafe {
        TABLE.free(|table| {
            freed = is_idle() && table.is_empty();
            if freed && let Some(page) = fork::page() {
                page.handles.set(0, 0);
            }
            freed
        });
    }
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
            assert_eq!(Handle::<PinEntry>::find(forged).err(), Some(Error::UnknownHandle("handle")));
            assert_eq!(Handle::<GdrEntry>::find(forged).err(), Some(Error::UnknownHandle("g")));
        }
    }
}
