//! The handles of the C API. A handle is the address of a slot, a small struct in memory that stays readable.
//!
//! C programs can pass any number as a handle. It is a live handle if it lies in the range of our slots, at a multiple
//! of the slot size, and the slot is in use. The check takes no lock, searches no table, and reads only that slot.
//!
//! A slot points to a [`Holder`], which owns the object, an open driver or a pin. After the check, another thread may
//! end the object, and its holder may get another object. So the holder stores the object with the object's handle, and
//! each call compares the stored handle with its own. A pin's handle that is passed as a `gdr_t` is refused, too: the
//! holder has one place for a pin and another for an open driver, and the latter is empty.

use std::ops::Range;
use std::{ptr, slice};

use gdrcopy_core::error::no_memory;
use gdrcopy_core::heap;
use gdrcopy_core::sync::{Guard, Mutex};
use gdrcopy_core::sys::fork::{self, AddressRange, PAGE, PerProcess};
use gdrcopy_core::types::MappingType;
use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::objects::{Holder, Kind, PinEntry, Place};
use crate::slots::{Arena, Slot, state};

/// Returns whether this address is that of a slot, the memory that a handle of this process points to.
#[inline(always)]
fn is_slot(handle: usize) -> bool {
    PAGE.handles.contains(handle) && handle.is_multiple_of(size_of::<Slot>())
}

/// Returns the slot at this address.
///
/// # Safety
/// [`is_slot`] returned true for this address.
#[inline(always)]
unsafe fn slot_at(handle: usize) -> &'static Slot {
    // SAFETY: the address is a multiple of the slot size in the range of committed slots, which stays
    // readable. A Slot consists of atomics, for which all bits are valid.
    unsafe { &*ptr::with_exposed_provenance::<Slot>(handle) }
}

/// Returns the slot of this process at this address, if there is one.
fn slot(handle: usize) -> Option<&'static Slot> {
    if !is_slot(handle) {
        return None;
    }
    // SAFETY: `is_slot` returned true for this handle.
    Some(unsafe { slot_at(handle) })
}

/// Returns the mapping type of the pin with this handle; `None` if the handle is not a mapped pin of this process.
#[inline(always)]
pub(crate) fn mapping_type(handle: usize) -> Option<MappingType> {
    if !is_slot(handle) {
        return None;
    }
    // `slot` is not called here, because the compiler would then test its result for null, which costs time.
    // SAFETY: `is_slot` returned true for this handle.
    unsafe { slot_at(handle) }.mapping_type()
}

/// Returns the reason why [`mapping_type`] returned `None`.
#[cold]
pub(crate) fn why_not_mapped(handle: usize) -> Error {
    match slot(handle).map(Slot::state) {
        Some(state::PIN) => Error::NotMapped,
        _ => why_unknown("handle", handle),
    }
}

/// Returns the error for the argument `name`, which is not a live handle of the right kind.
#[cold]
fn why_unknown(name: &'static str, handle: usize) -> Error {
    match inherited(handle) {
        Some((slot, _)) if slot.is_live() => gdrcopy_core::Error::ForkedChild.into(),
        _ => Error::UnknownHandle(name),
    }
}

/// The handles of one process.
pub(crate) struct Table {
    /// The address ranges that handles have in the parent of this forked process, in its parent, and so on.
    inherited: Vec<Range<usize>>,
    /// A copy of the range in `PAGE`. A forked child reads this copy, because the kernel clears `PAGE` in the child.
    range: AddressRange,
    state: Mutex<State>,
}

/// The slots, to which handles point, and the holders, which contain the objects.
#[derive(Default)]
struct State {
    arena: Option<Arena>,
    /// All holders, which contain the handles' objects. They are never freed, because callers with a stale handle may
    /// look at them at any time. Leak checkers find holders by this list. They do not search the slots' memory.
    holders: Vec<&'static Holder>,
    /// The holders that hold no object, for new handles.
    spare: Vec<&'static Holder>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

impl Table {
    /// Returns the table of this process's handles, and makes it first if there is none. A forked child's table takes
    /// over only the address ranges of the parent's handles.
    pub(crate) fn enter() -> Result<&'static Table> {
        fork::enter()?;
        let table = TABLE.get(|parent| {
            let mut inherited = Vec::new();
            if let Some(parent) = parent {
                inherited.clone_from(&parent.inherited);
                inherited.push(parent.range.bounds());
            }
            Table { inherited, range: AddressRange::default(), state: Mutex::default() }
        })?;
        Ok(table)
    }

    /// Returns this process's table. The caller has found a live handle, so this fails only in a child that was forked
    /// off after that, and has no table yet.
    pub(crate) fn of_live(argument: &'static str) -> Result<&'static Table> {
        TABLE.current().ok_or(Error::UnknownHandle(argument))
    }

    /// Gives the object a handle, and returns the handle's slot. Adds a pin's slot to the list of the pin's `gdr_t`.
    pub(crate) fn insert<T: Kind>(&self, object: T) -> Result<&'static Slot> {
        let mut state = self.state.lock_unless_here().ok_or(Error::InUse)?;
        let gdr = match object.gdr() {
            0 => None,
            // Fails if the `gdr_t` was closed while the pin was made, because nothing would release the pin later.
            gdr => Some(check_gdr(gdr)?),
        };
        let (slot, holder) = self.take_slot(&mut state)?;
        let mut place = T::place(holder).lock_unless_here().ok_or(Error::InUse)?;
        let (_, object) = place.insert((slot.handle(), object));
        object.show(slot);
        slot.publish(T::STATE, ptr::from_ref(holder).expose_provenance());
        if let Some(gdr) = gdr {
            slot.add_to(gdr);
        }
        Ok(slot)
    }

    /// Takes a free slot, whose address becomes a handle, and a free holder for the handle's object.
    fn take_slot(&self, state: &mut State) -> Result<(&'static Slot, &'static Holder)> {
        let arena = match &mut state.arena {
            Some(arena) => arena,
            none => none.insert(Arena::reserve().map_err(no_memory)?),
        };
        if state.spare.is_empty() {
            // `spare` gets room for all holders, including the new one, so that `give_back` allocates no memory.
            let holders = state.holders.len() + 1;
            state.holders.try_reserve(1).map_err(|_| no_memory(Errno::ENOMEM))?;
            state.spare.try_reserve(holders).map_err(|_| no_memory(Errno::ENOMEM))?;
            let [holder]: &'static [Holder; 1] = Box::leak(heap::boxed(Holder::default())?);
            state.holders.push(holder);
            state.spare.push(holder);
        }
        let slot = arena.take(|base, len| self.publish(base, len)).map_err(no_memory)?;
        match state.spare.pop() {
            Some(holder) => Ok((slot, holder)),
            None => unreachable!("one was added"),
        }
    }

    /// Removes a pin from the list of a `gdr_t` that is being closed, and returns it.
    pub(crate) fn take_pin(&self, gdr: &Slot) -> Option<&'static Slot> {
        let _state = self.state.lock_unless_here()?;
        let pin = slot(gdr.next())?;
        pin.remove();
        Some(pin)
    }

    /// Fails if this thread is in a call for one of the pins of a `gdr_t`.
    pub(crate) fn check_pins_unused(&self, gdr: &Slot) -> Result<()> {
        let _state = self.state.lock_unless_here().ok_or(Error::InUse)?;
        let mut next = gdr.next();
        while let Some(pin) = slot(next) {
            if let Ok(pin) = Handle::<PinEntry>::find(next)
                && pin.place.is_locked_here()
            {
                return Err(Error::InUse);
            }
            next = pin.next();
        }
        Ok(())
    }

    /// Stores the address range of the handles, which functions read without a lock.
    fn publish(&self, base: usize, len: usize) {
        self.range.set(base, len);
        PAGE.handles.set(base, len);
    }

    /// Makes a cleared slot available again, and its holder, which has no object any more.
    fn give_back(&self, slot: &'static Slot, holder: &'static Holder) {
        // `lock_unless_here` succeeds: our caller, `end`, has found that this thread does not hold the lock.
        if let Some(mut state) = self.state.lock_unless_here() {
            slot.remove();
            state.spare.push(holder);
            if let Some(arena) = &mut state.arena {
                arena.give_back(slot.handle());
            }
        }
    }
}

/// A handle that was live when it was looked up. Its object may end at any time.
pub(crate) struct Handle<T: Kind> {
    pub(crate) slot: &'static Slot,
    holder: &'static Holder,
    place: &'static Place<T>,
}

impl<T: Kind> Handle<T> {
    /// Returns the live handle with this number.
    pub(crate) fn find(number: usize) -> Result<Handle<T>> {
        let Some(slot) = slot(number) else {
            return Err(why_unknown(T::ARGUMENT, number));
        };
        let holder = slot.holder();
        if !slot.is_live() || holder == 0 {
            return Err(why_unknown(T::ARGUMENT, number));
        }
        // SAFETY: `insert` has stored the address of a holder in the slot, and holders are never freed.
        let holder = unsafe { &*ptr::with_exposed_provenance::<Holder>(holder) };
        Ok(Handle { slot, holder, place: T::place(holder) })
    }

    /// Calls `work` with the handle's object. Other threads' calls for this handle wait until `work` has returned.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let mut place = self.lock()?;
        work(self.object(&mut place)?)
    }

    /// Locks the holder's object. Fails if this thread is in another call for the handle.
    fn lock(&self) -> Result<Guard<'static, Option<(usize, T)>>> {
        self.place.lock_unless_here().ok_or(Error::InUse)
    }

    /// Returns the object at `place`, if it still belongs to this handle.
    fn object<'a>(&self, place: &'a mut Option<(usize, T)>) -> Result<&'a mut T> {
        match place {
            Some((handle, object)) if *handle == self.slot.handle() => Ok(object),
            _ => Err(why_unknown(T::ARGUMENT, self.slot.handle())),
        }
    }

    /// Calls `work` with the object, drops the object, calls `finish`, and makes the handle stale. If `work` fails, the
    /// object and the handle stay.
    pub(crate) fn end<R, E>(self, work: impl FnOnce(&mut T) -> Result<R>, finish: impl FnOnce(R) -> E) -> Result<E> {
        let table = Table::of_live(T::ARGUMENT)?;
        if table.state.is_locked_here() {
            return Err(Error::InUse);
        }
        let mut place = self.lock()?;
        let result = work(self.object(&mut place)?)?;
        // In this state, `gdr_close` in a newly forked child can still close the child's copy of the descriptor.
        self.slot.show_ending();
        *place = None;
        drop(place);
        let ended = finish(result);
        self.slot.clear();
        table.give_back(self.slot, self.holder);
        Ok(ended)
    }
}

/// Returns the slot of `g`. Fails if `g` is not the live handle of an open driver.
pub(crate) fn check_gdr(g: usize) -> Result<&'static Slot> {
    match slot(g) {
        Some(slot) if slot.state() == state::GDR => Ok(slot),
        _ => Err(why_unknown("g", g)),
    }
}

/// In a forked child, returns the child's copies of an ancestor's slots: the one at this address, and all of them.
fn inherited(handle: usize) -> Option<(&'static Slot, &'static [Slot])> {
    let latest = TABLE.look()?;
    let table = latest.value;
    let range = if !latest.is_own && table.range.contains(handle) {
        table.range.bounds()
    } else {
        table.inherited.iter().find(|range| range.contains(&handle))?.clone()
    };
    let first = ptr::with_exposed_provenance::<Slot>(range.start);
    let offset = handle - range.start;
    if !offset.is_multiple_of(size_of::<Slot>()) {
        return None;
    }
    // SAFETY: the range holds committed slots of a process that this one was forked off from. They stay readable and
    // writable. A Slot consists of atomics, valid whatever they hold.
    let slots = unsafe { slice::from_raw_parts(first, range.len() / size_of::<Slot>()) };
    Some((&slots[offset / size_of::<Slot>()], slots))
}

/// In a forked child, ends the parent's `gdr_t` with this handle, and its pins: closes the child's copies of their
/// descriptors, and makes their handles stale. Returns whether there was such a `gdr_t`. Takes no lock that another
/// thread of the parent may have held at the fork.
pub(crate) fn close_inherited(g: usize) -> bool {
    let Some((slot, slots)) = inherited(g) else {
        return false;
    };
    // At the fork, the `gdr_t` was open or being closed. A pin's slot can also be `ENDING`, but its `gdr` is not 0.
    if !(slot.take(state::GDR) || slot.gdr() == 0 && slot.take(state::ENDING)) {
        return false;
    }
    for pin in slots {
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
