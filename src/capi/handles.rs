//! The handles of the C API: addresses of slots, in memory that is never given back.
//!
//! C programs hand us any number as a handle. A handle is live if it lies in one of our ranges, at a
//! multiple of the slot size, and its slot says so: no lock, no hash, and nothing outside our own
//! memory is ever read. Slots are taken in turn around a ring of two million, so that a stale handle
//! stays stale for a long time; the physical memory behind long-dead ones goes back to the system.
//!
//! Behind a slot stands a [`Cell`], which owns the object. Cells live for ever too and are used again
//! at once; the object in them remembers its handle, so that a late caller finds it is not his.

use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use nix::errno::Errno;

use crate::capi::objects::{OpenGdr, PinnedBuffer};
use crate::error::{Error, Result};
use crate::process::{self, MAX_RANGES, Range};
use crate::sync::Mutex;
use crate::types::MappingType;

/// What a handle points to.
///
/// The test-suite of the original library looks at two fields of its private structs: the descriptor
/// at the start of a `gdr_t`, the driver's number at byte 24 of a `gdr_mh_t`.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Slot {
    descriptor: AtomicI32,
    state: AtomicU32,
    /// The address of the object's [`Cell`].
    cell: AtomicUsize,
    _unused: u64,
    driver_handle: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 128);
const _: () = assert!(offset_of!(Slot, descriptor) == 0 && offset_of!(Slot, driver_handle) == 24);

/// Values of `Slot::state`. Memory that was never used, or was given back, reads as `FREE`.
mod state {
    pub(super) const FREE: u32 = 0;
    pub(super) const TAKEN: u32 = 1;
    pub(super) const GDR: u32 = 2;
    /// A pin that is not mapped. With a mapping type added: mapped so.
    pub(super) const PIN: u32 = 4;
}

impl Slot {
    pub(super) fn show_descriptor(&self, descriptor: i32) {
        self.descriptor.store(descriptor, Ordering::Relaxed);
    }

    pub(super) fn show_driver_handle(&self, handle: u64) {
        // C programs of old print it as a 32-bit number.
        self.driver_handle.store(handle as u32, Ordering::Relaxed);
    }

    /// Opens (or with `None`, closes) the pin's copy path.
    pub(super) fn show_mapping(&self, kind: MappingType) {
        self.state
            .store(state::PIN + kind as u32, Ordering::Release);
    }

    fn clear(&self) {
        self.state.store(state::TAKEN, Ordering::Release);
        self.descriptor.store(0, Ordering::Relaxed);
        self.driver_handle.store(0, Ordering::Relaxed);
        self.cell.store(0, Ordering::Relaxed);
        self.state.store(state::FREE, Ordering::Release);
    }
}

/// The slot at this address, if it is one of this process's.
#[inline(always)]
fn slot(handle: usize) -> Option<&'static Slot> {
    let page = process::page()?;
    let is_ours = page.handles[0].contains(handle) || in_later_range(&page.handles, handle);
    // SAFETY: the address is a multiple of the slot size in a range of committed slots that stays
    // readable for the life of the process; a Slot is made of atomics, valid whatever they hold.
    (is_ours && handle.is_multiple_of(size_of::<Slot>()))
        .then(|| unsafe { &*ptr::with_exposed_provenance::<Slot>(handle) })
}

#[cold]
fn in_later_range(ranges: &[Range], handle: usize) -> bool {
    ranges[1..].iter().any(|range| range.contains(handle))
}

/// How the pin with this handle is mapped; `None` for all that is not a mapped pin of this process.
#[inline(always)]
pub(super) fn mapping_type(handle: usize) -> Option<MappingType> {
    let state = slot(handle)?.state.load(Ordering::Acquire);
    const WC: u32 = state::PIN + MappingType::WriteCombining as u32;
    const CACHING: u32 = state::PIN + MappingType::Caching as u32;
    const DEVICE: u32 = state::PIN + MappingType::Device as u32;
    match state {
        WC => Some(MappingType::WriteCombining),
        CACHING => Some(MappingType::Caching),
        DEVICE => Some(MappingType::Device),
        _ => None,
    }
}

/// Why [`mapping_type`] said no.
#[cold]
pub(super) fn why_not_mapped(handle: usize) -> Error {
    match slot(handle).map(|slot| slot.state.load(Ordering::Acquire)) {
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
pub(super) trait Object: Sized + Send + 'static {
    /// `Slot::state` of a live one.
    const STATE: u32;
    /// What errors call the argument.
    const ARGUMENT: &'static str;

    /// Its cells that wait for use.
    fn spare_cells(table: &Table) -> &Mutex<Vec<&'static Cell<Self>>>;

    /// Writes what C programs look for into its slot.
    fn show(&self, slot: &Slot);
}

impl Object for OpenGdr {
    const STATE: u32 = state::GDR;
    const ARGUMENT: &'static str = "g";

    fn spare_cells(table: &Table) -> &Mutex<Vec<&'static Cell<Self>>> {
        &table.spare_gdrs
    }

    fn show(&self, slot: &Slot) {
        slot.show_descriptor(self.descriptor());
    }
}

impl Object for PinnedBuffer {
    const STATE: u32 = state::PIN;
    const ARGUMENT: &'static str = "handle";

    fn spare_cells(table: &Table) -> &Mutex<Vec<&'static Cell<Self>>> {
        &table.spare_pins
    }

    fn show(&self, slot: &Slot) {
        slot.show_driver_handle(self.driver_handle());
    }
}

/// Where an object lives, with the handle it answers to.
#[derive(Debug)]
pub(super) struct Cell<T>(Mutex<Option<(usize, T)>>);

/// The handles of this process since it first opened a driver.
pub(super) struct Table {
    epoch: u64,
    /// Handle memory of the processes it was forked off from.
    inherited: Vec<std::ops::Range<usize>>,
    /// The same ranges as in the process's page, readable where that was wiped.
    ranges: [Range; MAX_RANGES],
    arenas: Mutex<Vec<Arena>>,
    spare_gdrs: Mutex<Vec<&'static Cell<OpenGdr>>>,
    spare_pins: Mutex<Vec<&'static Cell<PinnedBuffer>>>,
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
                spare_gdrs: Mutex::default(),
                spare_pins: Mutex::default(),
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
        let spare = T::spare_cells(self).lock().pop();
        let cell = spare.unwrap_or_else(|| Box::leak(Box::new(Cell(Mutex::new(None)))));
        object.show(slot);
        *cell.0.lock() = Some((handle, object));
        slot.cell
            .store(ptr::from_ref(cell).expose_provenance(), Ordering::Relaxed);
        // Release: who sees the state sees the cell.
        slot.state.store(T::STATE, Ordering::Release);
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

/// The live object with this handle: its slot and its cell.
fn find<T: Object>(handle: usize) -> Result<(&'static Slot, &'static Cell<T>)> {
    let unknown = || why_unknown(T::ARGUMENT, handle);
    let slot = slot(handle).ok_or_else(unknown)?;
    let state = slot.state.load(Ordering::Acquire);
    let is_live = if T::STATE == state::PIN {
        state >= state::PIN
    } else {
        state == T::STATE
    };
    let cell = ptr::with_exposed_provenance::<Cell<T>>(slot.cell.load(Ordering::Relaxed));
    if !is_live || cell.is_null() {
        return Err(unknown());
    }
    // SAFETY: slots of this state point to leaked cells of this type. Between the two loads the slot
    // may have been freed (the pointer is then null), but not taken again: that is ring lengths away.
    Ok((slot, unsafe { &*cell }))
}

/// Works on the object with this handle; other callers with the same handle wait.
pub(super) fn with<T: Object, R>(
    handle: usize,
    work: impl FnOnce(&mut T, &Slot) -> Result<R>,
) -> Result<R> {
    let (slot, cell) = find::<T>(handle)?;
    match &mut *cell.0.lock() {
        Some((owner, object)) if *owner == handle => work(object, slot),
        _ => Err(why_unknown(T::ARGUMENT, handle)),
    }
}

/// Takes the object with this handle out, if `may` agrees; the handle is stale from then on.
pub(super) fn take<T: Object>(handle: usize, may: impl FnOnce(&T) -> Result<()>) -> Result<T> {
    let (slot, cell) = find::<T>(handle)?;
    let object = {
        let mut occupant = cell.0.lock();
        match &*occupant {
            Some((owner, object)) if *owner == handle => may(object)?,
            _ => return Err(why_unknown(T::ARGUMENT, handle)),
        }
        slot.clear();
        occupant.take()
    };
    if let Some(table) = Table::current() {
        T::spare_cells(table).lock().push(cell);
        table.give_back(slot);
    }
    object
        .map(|(_, object)| object)
        .ok_or(Error::UnknownHandle(T::ARGUMENT))
}

/// Slots of one reservation of address space, taken in turn.
struct Arena {
    base: usize,
    slots: usize,
    /// Slots that are readable and writable: the first so many.
    committed: usize,
    /// Where to look for the next free one.
    next: usize,
    live: usize,
    /// Live slots in each step of [`STEP`].
    live_in_step: Vec<u32>,
}

/// Slots that are committed at once, and whose memory is given back together: 1 MiB.
const STEP: usize = (1 << 20) / size_of::<Slot>();
/// Slots of a full-size arena: 256 MiB of address space. Half of them may live at once, so that a dead
/// one rests for at least a million pins.
const FULL: usize = 2 << 20;

impl Arena {
    /// Reserves address space: as much as the process may have.
    fn reserve() -> std::result::Result<Arena, Errno> {
        let mut slots = FULL;
        loop {
            // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
            let address = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    slots * size_of::<Slot>(),
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if address != libc::MAP_FAILED {
                return Ok(Arena {
                    base: address.expose_provenance(),
                    slots,
                    committed: 0,
                    next: 0,
                    live: 0,
                    live_in_step: vec![0; slots / STEP],
                });
            }
            if slots == STEP {
                return Err(Errno::last());
            }
            slots = (slots / 4).max(STEP);
        }
    }

    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.slots * size_of::<Slot>()
    }

    fn slot(&self, index: usize) -> &'static Slot {
        // SAFETY: callers pass committed indices; that memory is zeroed at first and stays mapped.
        unsafe { &*ptr::with_exposed_provenance(self.base + index * size_of::<Slot>()) }
    }

    /// The next free slot; none when half of them live. `publish` learns of newly committed memory.
    fn take(
        &mut self,
        publish: impl Fn(usize, usize),
    ) -> std::result::Result<Option<&'static Slot>, Errno> {
        if self.live * 2 >= self.slots {
            return Ok(None);
        }
        loop {
            if self.next == self.slots {
                self.next = 0;
            }
            if self.next == self.committed {
                self.commit()?;
                publish(self.base, self.committed * size_of::<Slot>());
            }
            let index = self.next;
            let slot = self.slot(index);
            let is_free = slot.state.load(Ordering::Acquire) == state::FREE;
            if is_free {
                slot.state.store(state::TAKEN, Ordering::Relaxed);
                self.live += 1;
                self.live_in_step[index / STEP] += 1;
            }
            self.next += 1;
            if self.next.is_multiple_of(STEP) {
                self.trim(index / STEP);
            }
            if is_free {
                return Ok(Some(slot));
            }
        }
    }

    fn commit(&mut self) -> std::result::Result<(), Errno> {
        let bytes = STEP * size_of::<Slot>();
        let address = self.base + self.committed * size_of::<Slot>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is part of our own reservation, not used yet.
        match unsafe {
            libc::mprotect(ptr::with_exposed_provenance_mut(address), bytes, protection)
        } {
            0 => {
                self.committed += STEP;
                Ok(())
            }
            _ => Err(Errno::last()),
        }
    }

    fn give_back(&mut self, address: usize) {
        let step = (address - self.base) / size_of::<Slot>() / STEP;
        self.live -= 1;
        self.live_in_step[step] -= 1;
        if self.next / STEP != step {
            self.trim(step);
        }
    }

    /// Gives the memory of a step back if all its slots are dead: they go on reading as `FREE`.
    fn trim(&mut self, step: usize) {
        if self.live_in_step[step] == 0 {
            let bytes = STEP * size_of::<Slot>();
            let address = ptr::with_exposed_provenance_mut(self.base + step * bytes);
            // SAFETY: the range is ours; all its slots are free, which zeroed memory is too. It is only
            // advice: a failure costs memory, nothing else.
            unsafe { libc::madvise(address, bytes, libc::MADV_DONTNEED) };
        }
    }
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
    if arenas.iter().any(|arena| arena.live > 0) {
        return;
    }
    for (index, arena) in arenas.drain(..).enumerate() {
        table.ranges[index].set(arena.base, 0);
        if let Some(page) = process::page() {
            page.handles[index].set(arena.base, 0);
        }
        let bytes = arena.slots * size_of::<Slot>();
        // SAFETY: the reservation is ours, and no live handle points into it.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(arena.base), bytes) };
    }
}

// The section holds pointers to functions of this type; the loader calls them at dlclose and at exit.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = unload;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arena: &mut Arena) -> &'static Slot {
        arena
            .take(|_, _| ())
            .expect("memory")
            .expect("fewer than half are live")
    }

    #[test]
    fn a_dead_slot_rests_for_a_million_turns() {
        let mut arena = Arena::reserve().expect("address space");
        let first = take(&mut arena);
        let address = ptr::from_ref(first).addr();
        first.clear();
        arena.give_back(address);
        for _ in 0..1_000_000 {
            let slot = take(&mut arena);
            assert_ne!(ptr::from_ref(slot).addr(), address);
            slot.clear();
            arena.give_back(ptr::from_ref(slot).addr());
        }
        assert_eq!(arena.live, 0);
    }

    #[test]
    fn live_slots_are_passed_over_and_half_are_kept_free() {
        let mut arena = Arena::reserve().expect("address space");
        arena.slots = 2 * STEP;
        let kept: Vec<_> = (0..STEP).map(|_| take(&mut arena)).collect();
        assert!(
            arena.take(|_, _| ()).expect("memory").is_none(),
            "half of the slots live"
        );
        kept[7].clear();
        arena.give_back(ptr::from_ref(kept[7]).addr());
        let mut seen = Vec::new();
        for _ in 0..2 * STEP {
            let slot = take(&mut arena);
            seen.push(ptr::from_ref(slot).addr());
            slot.clear();
            arena.give_back(ptr::from_ref(slot).addr());
        }
        let live = |address: &usize| {
            let is = |slot: &&Slot| ptr::from_ref(*slot).addr() == *address;
            kept.iter()
                .enumerate()
                .any(|(index, slot)| index != 7 && is(slot))
        };
        assert!(!seen.iter().any(live));
        assert!(
            seen.contains(&ptr::from_ref(kept[7]).addr()),
            "round the ring, its turn comes"
        );
    }

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
