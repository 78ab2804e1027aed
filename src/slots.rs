//! The memory that handles point into, one slot per handle, taken from a ring.
//!
//! Slots are taken in turn around a ring of one million, of which at most half are live. So a handle's number returns
//! only after about half a million others. The ring is smaller if address space is limited. Its addresses are never
//! released. The physical memory of `STEP` slots is released when all are free. It then reads as zeros, as free slots.

use std::mem::{offset_of, size_of};
use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gdrcopy_core::sys::fork::OpenFile;
use gdrcopy_core::sys::mmap;
use gdrcopy_core::types::{MappingType, raw};
use libc::c_void;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munlock};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// The memory behind a handle.
///
/// The test suite of NVIDIA's libgdrapi 2.6 reads two private fields: the descriptor at byte 0 of the memory that a
/// `gdr_t` points to, and the driver's number of a pin at byte 24 of the memory behind a `gdr_mh_t`.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    descriptor: AtomicI32,
    state: AtomicU32,
    /// The address of the `Holder` of the slot's object.
    holder: AtomicUsize,
    /// The handle of the pin's `gdr_t`; 0 if this slot is not a pin.
    gdr: AtomicUsize,
    driver_handle: AtomicU32,
    /// How many of the `STEP` slots that begin with this one are live. Only the first slot of each step has the number.
    live_in_step: AtomicU32,
    // The file that `descriptor` stands for. A forked child closes `descriptor` only if it still stands for this file.
    file_device: AtomicU64,
    file_inode: AtomicU64,
    /// In a pin's slot, the next pin of the same `gdr_t`; in the slot of a `gdr_t`, its first pin; 0 if there is none.
    /// The table's lock protects the field.
    next: AtomicUsize,
    /// The previous pin of the same `gdr_t`, or the `gdr_t` itself if there is none; 0 if this slot is in no list.
    previous: AtomicUsize,
}

const _: () = assert!(size_of::<Slot>() == 128);
const _: () = assert!(offset_of!(Slot, descriptor) == 0 && offset_of!(Slot, driver_handle) == 24);

/// The states of a slot. Memory that was never used, or was released, reads as `FREE`.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const TAKEN: u32 = 1;
    pub(crate) const GDR: u32 = 2;
    /// The handle is being closed or unpinned. Only `gdr_close` in a forked child can still use it.
    pub(crate) const ENDING: u32 = 3;
    /// A pin that is not mapped. The state of a mapped pin is this plus the number of its mapping type.
    pub(crate) const PIN: u32 = 4;
}

impl Slot {
    #[inline(always)]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Returns whether the slot is the handle of an object.
    pub(crate) fn is_live(&self) -> bool {
        self.state() >= state::GDR
    }

    /// Returns the mapping type of the slot's pin; `None` if the slot is not a mapped pin.
    #[inline(always)]
    pub(crate) fn mapping_type(&self) -> Option<MappingType> {
        const WC: u32 = state::PIN + MappingType::WriteCombining as u32;
        const CACHING: u32 = state::PIN + MappingType::Caching as u32;
        const DEVICE: u32 = state::PIN + MappingType::Device as u32;
        match self.state() {
            WC => Some(MappingType::WriteCombining),
            CACHING => Some(MappingType::Caching),
            DEVICE => Some(MappingType::Device),
            _ => None,
        }
    }

    /// The address of the `Holder` of the slot's object; 0 if the slot has been cleared.
    pub(crate) fn holder(&self) -> usize {
        self.holder.load(Ordering::Relaxed)
    }

    /// The handle of the pin's `gdr_t`; 0 if the slot is not a pin.
    pub(crate) fn gdr(&self) -> usize {
        self.gdr.load(Ordering::Relaxed)
    }

    /// The handle, which is the slot's address.
    pub(crate) fn handle(&self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    /// The handle of the next slot in the list of a `gdr_t`'s pins; 0 at the end of the list.
    pub(crate) fn next(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    /// Adds the slot to the list of the pins of `gdr`. The caller has locked the list.
    pub(crate) fn add_to(&self, gdr: &Slot) {
        self.next.store(gdr.next(), Ordering::Relaxed);
        self.previous.store(gdr.handle(), Ordering::Relaxed);
        if let Some(next) = self.neighbor(&self.next) {
            next.previous.store(self.handle(), Ordering::Relaxed);
        }
        gdr.next.store(self.handle(), Ordering::Relaxed);
    }

    /// Removes the slot from its list, if it is in one. The caller has locked the list.
    pub(crate) fn remove(&self) {
        let Some(previous) = self.neighbor(&self.previous) else {
            return;
        };
        previous.next.store(self.next(), Ordering::Relaxed);
        if let Some(next) = self.neighbor(&self.next) {
            next.previous.store(previous.handle(), Ordering::Relaxed);
        }
        self.next.store(0, Ordering::Relaxed);
        self.previous.store(0, Ordering::Relaxed);
    }

    /// Returns the slot whose handle is in `place`, a `next` or `previous` field.
    fn neighbor(&self, place: &AtomicUsize) -> Option<&'static Slot> {
        // SAFETY: the field is 0, or the handle of a slot in the same arena, which stays readable and writable.
        unsafe { ptr::with_exposed_provenance::<Slot>(place.load(Ordering::Relaxed)).as_ref() }
    }

    /// Returns the open file that `show` has stored, if there is one.
    pub(crate) fn file(&self) -> Option<OpenFile> {
        let number = self.descriptor.load(Ordering::Relaxed);
        if number < 0 {
            return None;
        }
        Some(OpenFile {
            number,
            device: self.file_device.load(Ordering::Relaxed),
            inode: self.file_inode.load(Ordering::Relaxed),
        })
    }

    /// Stores the handle of a pin's `gdr_t`, the object's open file, and the driver's number for a pin. `gdr` and
    /// `driver_handle` are 0 if the object is not a pin.
    pub(crate) fn show(&self, gdr: usize, file: Option<OpenFile>, driver_handle: u64) {
        let none = OpenFile { number: -1, device: 0, inode: 0 };
        let file = file.unwrap_or(none);
        self.gdr.store(gdr, Ordering::Relaxed);
        self.descriptor.store(file.number, Ordering::Relaxed);
        self.file_device.store(file.device, Ordering::Relaxed);
        self.file_inode.store(file.inode, Ordering::Relaxed);
        // The field has only 32 bits, because old C programs read and print it as 32 bits.
        self.driver_handle.store(driver_handle as u32, Ordering::Relaxed);
    }

    /// Stores the type of the pin's mapping, which every copy checks; `None` after the pin is unmapped.
    pub(crate) fn show_mapping(&self, mapping_type: Option<MappingType>) {
        self.state.store(state::PIN + raw::of_mapping_type(mapping_type), Ordering::Release);
    }

    /// Makes the slot a live handle. `holder` is the address of the `Holder` that contains the handle's object.
    pub(crate) fn publish(&self, state: u32, holder: usize) {
        self.holder.store(holder, Ordering::Relaxed);
        // With Release ordering, a thread that sees this state also sees this holder.
        self.state.store(state, Ordering::Release);
    }

    /// Marks the handle as being closed or unpinned. Its object is dropped next.
    pub(crate) fn show_ending(&self) {
        self.state.store(state::ENDING, Ordering::Release);
    }

    /// If the slot is in this state, makes the handle stale and returns true. Only one of several threads gets true.
    pub(crate) fn take(&self, state: u32) -> bool {
        self.state.compare_exchange(state, state::TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the handle stale, and its slot free.
    pub(crate) fn clear(&self) {
        self.state.store(state::TAKEN, Ordering::Release);
        self.descriptor.store(0, Ordering::Relaxed);
        self.driver_handle.store(0, Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        self.state.store(state::FREE, Ordering::Release);
    }
}

/// The slots in one range of reserved addresses. They are taken cyclically, in the order of their addresses.
#[derive(Debug)]
pub(crate) struct Arena {
    base: usize,
    slots: usize,
    /// The number of slots, from the first on, that are readable and writable.
    committed: usize,
    /// The index of the slot at which the search for a free one goes on.
    next: usize,
    live: usize,
}

/// The number of slots in a step. An arena is a range of slots, whose memory is committed and released in whole steps.
/// One live slot prevents the release of its step, so a step is small.
const STEP: usize = STEP_BYTES / size_of::<Slot>();
const STEP_BYTES: usize = 1 << 16;
/// The number of slots for which an arena reserves addresses (128 MiB) if address space is not limited.
const FULL: usize = 1 << 20;

impl Arena {
    /// Reserves addresses for `FULL` slots. If the process has a limit of address space, reserves at most a sixteenth
    /// of the limit, and less if that much is not left.
    pub(crate) fn reserve() -> nix::Result<Arena> {
        let (limit, _) = getrlimit(Resource::RLIMIT_AS).unwrap_or((RLIM_INFINITY, 0));
        let mut slots = whole_steps(usize::try_from(limit / 16).unwrap_or(usize::MAX) / size_of::<Slot>());
        loop {
            // SAFETY: the kernel chooses a free address, so no other memory is touched.
            match unsafe { mmap::reserve(None, slots * size_of::<Slot>()) } {
                Err(Errno::ENOMEM) if slots > STEP => slots = whole_steps(slots / 16),
                Err(errno) => return Err(errno),
                Ok(base) => {
                    let base = base.expose_provenance().get();
                    return Ok(Arena { base, slots, committed: 0, next: 0, live: 0 });
                }
            }
        }
    }

    fn slot(&self, index: usize) -> &'static Slot {
        // SAFETY: callers pass the index of a committed slot. Its memory is zeroed at first and stays mapped.
        unsafe { &*ptr::with_exposed_provenance(self.base + index * size_of::<Slot>()) }
    }

    /// Takes the next free slot. Fails with `ENOMEM` if half of the slots are live. If it makes more slots usable, it
    /// calls `publish` with the address and the size of all usable slots.
    pub(crate) fn take(&mut self, publish: impl Fn(usize, usize)) -> nix::Result<&'static Slot> {
        if self.live * 2 >= self.slots {
            return Err(Errno::ENOMEM);
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
            let is_free = slot.state() == state::FREE;
            if is_free {
                slot.state.store(state::TAKEN, Ordering::Relaxed);
                self.live += 1;
                self.live_in_step(index / STEP).fetch_add(1, Ordering::Relaxed);
            }
            self.next += 1;
            if self.next.is_multiple_of(STEP) {
                self.trim(index / STEP);
            }
            if is_free {
                return Ok(slot);
            }
        }
    }

    /// Makes the next `STEP` slots readable and writable. Calls mmap, because mprotect would not lock the memory in a
    /// process that locks all its memory (`mlockall`), and because some sandboxes deny mprotect.
    fn commit(&mut self) -> nix::Result<()> {
        let step = self.step(self.committed / STEP);
        let size = NonZeroUsize::new(STEP_BYTES).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_ANONYMOUS | MapFlags::MAP_FIXED;
        // SAFETY: the range is part of our own reservation, not used yet.
        match unsafe { mmap_anonymous(Some(step.addr()), size, access, flags) } {
            // The process has reached its limit of locked memory. mprotect makes the slots usable without locking them.
            // SAFETY: the range is part of our own reservation, which is private and anonymous.
            Err(Errno::EAGAIN) => unsafe { mprotect(step, STEP_BYTES, access) }?,
            mapped => drop(mapped?),
        }
        self.committed += STEP;
        Ok(())
    }

    /// Returns the address of the step with this index. A step is `STEP` slots.
    fn step(&self, step: usize) -> NonNull<c_void> {
        let address = ptr::with_exposed_provenance_mut(self.base + step * STEP_BYTES);
        // SAFETY: the reservation does not begin at 0.
        unsafe { NonNull::new_unchecked(address) }
    }

    /// The number of live slots among the `STEP` slots of the step with this index. Its memory must be committed.
    fn live_in_step(&self, step: usize) -> &'static AtomicU32 {
        &self.slot(step * STEP).live_in_step
    }

    /// Takes back the cleared slot at this address.
    pub(crate) fn give_back(&mut self, address: usize) {
        let step = (address - self.base) / size_of::<Slot>() / STEP;
        self.live -= 1;
        self.live_in_step(step).fetch_sub(1, Ordering::Relaxed);
        if self.next / STEP != step {
            self.trim(step);
        }
    }

    /// Releases the memory of the step (`STEP` slots) with this index if none of its slots is live. The slots continue
    /// to read as `FREE`. Locked memory (`mlockall`) cannot be released, so it is unlocked first.
    fn trim(&mut self, step: usize) {
        if self.live_in_step(step).load(Ordering::Relaxed) != 0 {
            return;
        }
        let address = self.step(step);
        // SAFETY: the range is ours. All its slots are free, and slots that read as zeros are free, too. If a call
        // fails, the memory only stays in use.
        unsafe {
            if madvise(address, STEP_BYTES, MmapAdvise::MADV_DONTNEED).is_err() {
                let _ = munlock(address, STEP_BYTES);
                let _ = madvise(address, STEP_BYTES, MmapAdvise::MADV_DONTNEED);
            }
        }
    }
}

/// Rounds a number of slots down to a multiple of `STEP`, but to at least `STEP` and at most `FULL` slots.
fn whole_steps(slots: usize) -> usize {
    (slots.min(FULL) / STEP * STEP).max(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arena: &mut Arena) -> &'static Slot {
        arena.take(|_, _| ()).expect("memory, and fewer than half are live")
    }

    fn give_back(arena: &mut Arena, slot: &Slot) {
        slot.clear();
        arena.give_back(slot.handle());
    }

    #[test]
    fn arenas_have_whole_steps() {
        assert_eq!(whole_steps(usize::MAX), FULL);
        assert_eq!(whole_steps(FULL), FULL);
        assert_eq!(whole_steps(FULL - 1), FULL - STEP);
        assert_eq!(whole_steps(2 * STEP), 2 * STEP);
        assert_eq!(whole_steps(0), STEP);
    }

    /// Returns the handles in the list of a `gdr_t`'s pins.
    fn pins_of(gdr: &Slot) -> Vec<usize> {
        let mut pins = Vec::new();
        let mut last = gdr;
        while let Some(pin) = last.neighbor(&last.next) {
            pins.push(pin.handle());
            last = pin;
        }
        pins
    }

    #[test]
    fn pins_are_removed_once_from_any_place() {
        let mut arena = Arena::reserve().expect("address space");
        let gdr = take(&mut arena);
        let pins: [_; 4] = std::array::from_fn(|_| take(&mut arena));
        for pin in pins {
            pin.add_to(gdr);
        }
        let mut left: Vec<_> = pins.iter().rev().map(|pin| pin.handle()).collect();
        assert_eq!(pins_of(gdr), left);
        for removed in [1, 0, 3, 2] {
            pins[removed].remove();
            pins[removed].remove();
            left.retain(|&handle| handle != pins[removed].handle());
            assert_eq!(pins_of(gdr), left);
        }
    }

    #[test]
    fn live_slots_are_skipped_and_half_stay_free() {
        let mut arena = Arena::reserve().expect("address space");
        arena.slots = 2 * STEP;
        let mut kept: Vec<_> = (0..STEP).map(|_| take(&mut arena)).collect();
        assert!(arena.take(|_, _| ()).is_err(), "half of the slots live");
        give_back(&mut arena, kept[7]);
        let mut seen = Vec::new();
        for _ in 0..2 * STEP {
            let slot = take(&mut arena);
            seen.push(ptr::from_ref(slot).addr());
            give_back(&mut arena, slot);
        }
        let freed = kept.swap_remove(7);
        for live in kept {
            assert!(!seen.contains(&ptr::from_ref(live).addr()));
        }
        assert!(seen.contains(&ptr::from_ref(freed).addr()), "the freed slot is reused after one round");
    }

    #[test]
    fn memory_of_a_step_is_released_with_its_last_live_slot() {
        let mut arena = Arena::reserve().expect("address space");
        let slots: Vec<_> = (0..2 * STEP).map(|_| take(&mut arena)).collect();
        let (last, others) = slots[STEP..].split_last().expect("a step has slots");
        last.show(1, None, 0);
        others.iter().for_each(|slot| give_back(&mut arena, slot));
        assert_eq!(last.gdr(), 1, "the slot is live");
        give_back(&mut arena, last);
        assert_eq!(last.gdr(), 0, "`clear` keeps this field, which reads as 0 in released memory");
        let next = take(&mut arena);
        next.show(1, None, 0);
        give_back(&mut arena, next);
        assert_eq!(next.gdr(), 1, "the step from which slots are being taken is kept");
    }
}
