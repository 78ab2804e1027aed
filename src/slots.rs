//! The memory that handles point into, one slot per handle, taken from a ring.
//!
//! Slots are taken in turn around a ring of one million, so that a stale handle stays stale for at least half
//! a million pins. The ring has fewer where the address space is limited. The address space is not released
//! while the library is loaded. The physical memory behind slots freed long ago is, and then reads as zeros,
//! which is a free slot.

use std::fs::File;
use std::io::Read;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gdrcopy_core::sys::fork::{OpenFile, page_size};
use gdrcopy_core::types::{MappingType, raw};
use libc::c_void;
use nix::errno::Errno;

/// The memory behind a handle.
///
/// The test suite of NVIDIA's libgdrapi 2.6 looks at two fields of its private structs. These are the
/// descriptor at the start of a `gdr_t`, and the driver's number at byte 24 of a `gdr_mh_t`.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    descriptor: AtomicI32,
    state: AtomicU32,
    /// The address of the `Holder` of its object.
    holder: AtomicUsize,
    /// For a pin, the handle of its `gdr_t`; else 0.
    gdr: AtomicUsize,
    driver_handle: AtomicU32,
    // With `descriptor`: the open file that a forked child can close.
    file_device: AtomicU64,
    file_inode: AtomicU64,
    /// Of a pin, its index in the list of its `gdr_t`.
    index: AtomicUsize,
}

const _: () = assert!(size_of::<Slot>() == 128);
const _: () = assert!(offset_of!(Slot, descriptor) == 0 && offset_of!(Slot, driver_handle) == 24);

/// The states of a slot. Memory that was never used, or was released, reads as `FREE`.
pub(crate) mod state {
    pub(crate) const FREE: u32 = 0;
    pub(crate) const TAKEN: u32 = 1;
    pub(crate) const GDR: u32 = 2;
    /// A handle that only `gdr_close` in a child that is forked off still uses.
    pub(crate) const ENDING: u32 = 3;
    /// A pin that is not mapped. With a mapping type added, if mapped so.
    pub(crate) const PIN: u32 = 4;
}

impl Slot {
    #[inline(always)]
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Returns whether it is the handle of an object.
    pub(crate) fn is_live(&self) -> bool {
        self.state() >= state::GDR
    }

    /// How the slot's pin is mapped; `None` if it is not, or is no pin.
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

    /// The address of the holder of its object; 0 if the slot has been cleared.
    pub(crate) fn holder(&self) -> usize {
        self.holder.load(Ordering::Relaxed)
    }

    /// The handle of a pin's `gdr_t`; 0 if it is no pin.
    pub(crate) fn gdr(&self) -> usize {
        self.gdr.load(Ordering::Relaxed)
    }

    pub(crate) fn show_gdr(&self, gdr: usize) {
        self.gdr.store(gdr, Ordering::Relaxed);
    }

    /// The handle that it is.
    pub(crate) fn handle(&self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed)
    }

    pub(crate) fn show_index(&self, index: usize) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// The open file that it shows.
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

    pub(crate) fn show_file(&self, file: Option<OpenFile>) {
        let none = OpenFile { number: -1, device: 0, inode: 0 };
        let file = file.unwrap_or(none);
        self.descriptor.store(file.number, Ordering::Relaxed);
        self.file_device.store(file.device, Ordering::Relaxed);
        self.file_inode.store(file.inode, Ordering::Relaxed);
    }

    pub(crate) fn show_driver_handle(&self, handle: u64) {
        // Old C programs print it as a 32-bit number.
        self.driver_handle.store(handle as u32, Ordering::Relaxed);
    }

    /// Opens (or with `None`, closes) the pin's copy path.
    pub(crate) fn show_mapping(&self, mapping_type: Option<MappingType>) {
        self.state.store(state::PIN + raw::of_mapping_type(mapping_type), Ordering::Release);
    }

    /// Makes the slot a live handle of the object in this holder.
    pub(crate) fn publish(&self, state: u32, holder: usize) {
        self.holder.store(holder, Ordering::Relaxed);
        // Release: a reader that sees the state sees the holder.
        self.state.store(state, Ordering::Release);
    }

    /// The object of the handle is about to end.
    pub(crate) fn show_ending(&self) {
        self.state.store(state::ENDING, Ordering::Release);
    }

    /// Makes the handle stale, if it is one in this state; only one of several callers does.
    pub(crate) fn take(&self, state: u32) -> bool {
        self.state.compare_exchange(state, state::TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes the handle stale.
    pub(crate) fn clear(&self) {
        self.state.store(state::TAKEN, Ordering::Release);
        self.descriptor.store(0, Ordering::Relaxed);
        self.driver_handle.store(0, Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        self.state.store(state::FREE, Ordering::Release);
    }
}

/// Slots of one reservation of address space, taken in turn.
#[derive(Debug)]
pub(crate) struct Arena {
    base: usize,
    slots: usize,
    /// The number of slots, from the first on, that are readable and writable.
    committed: usize,
    /// Where to look for the next free one.
    next: usize,
    live: usize,
    /// Live slots in each step of [`STEP`].
    live_in_step: [u32; FULL / STEP],
}

/// Slots that are committed at once, and whose memory is given back together, 1 MiB.
const STEP: usize = STEP_BYTES / size_of::<Slot>();
const STEP_BYTES: usize = 1 << 20;
/// Slots of a full-size arena, with 128 MiB of address space. At most half of them are live at a time, so a
/// freed one is not reused for at least half a million pins.
const FULL: usize = 1 << 20;

impl Arena {
    /// Reserves address space for a full-size arena. Where the process may have only a limited amount, the
    /// arena takes at most a sixteenth of the rest. The program keeps the other.
    pub(crate) fn reserve() -> nix::Result<Arena> {
        let slots = slots_within(address_space_left());
        let bytes = slots * size_of::<Slot>();
        // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
        let address = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // With mlockall(MCL_FUTURE) all of it counts as locked. Only what is committed should.
        // SAFETY: the range is ours; a failure has no effect on its content.
        unsafe { libc::munlock(address, bytes) };
        Ok(Arena {
            base: address.expose_provenance(),
            slots,
            committed: 0,
            next: 0,
            live: 0,
            live_in_step: [0; FULL / STEP],
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn slot(&self, index: usize) -> &'static Slot {
        // SAFETY: callers pass committed indices; that memory is zeroed at first and stays mapped.
        unsafe { &*ptr::with_exposed_provenance(self.base + index * size_of::<Slot>()) }
    }

    /// The next free slot; `ENOMEM` when half of them are live. `publish` is called with the range in use when
    /// that grows.
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
                self.live_in_step[index / STEP] += 1;
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

    /// Makes the next step readable and writable. A new mapping, unlike mprotect, is locked if the process
    /// locks its memory, and is allowed in sandboxes that deny mprotect.
    fn commit(&mut self) -> nix::Result<()> {
        // SAFETY: the range is part of our own reservation, not used yet.
        let mapped = unsafe {
            libc::mmap(
                self.step(self.committed / STEP),
                STEP_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        self.committed += STEP;
        Ok(())
    }

    /// The address of a step.
    fn step(&self, step: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.base + step * STEP_BYTES)
    }

    /// Takes back the slot at this address, which was cleared.
    pub(crate) fn give_back(&mut self, address: usize) {
        let step = (address - self.base) / size_of::<Slot>() / STEP;
        self.live -= 1;
        self.live_in_step[step] -= 1;
        if self.next / STEP != step {
            self.trim(step);
        }
    }

    /// Releases the memory of a step if all its slots are dead. They continue to read as `FREE`. Locked memory
    /// (`mlockall`) cannot be released, so it is not locked from then on.
    fn trim(&mut self, step: usize) {
        if self.live_in_step[step] != 0 {
            return;
        }
        let address = self.step(step);
        // SAFETY: the range is ours; all its slots are free, which zeroed memory is too. It is only advice, so
        // a failure costs memory, nothing else.
        unsafe {
            if libc::madvise(address, STEP_BYTES, libc::MADV_DONTNEED) != 0 {
                libc::munlock(address, STEP_BYTES);
                libc::madvise(address, STEP_BYTES, libc::MADV_DONTNEED);
            }
        }
    }
}

/// `slots`, in whole steps; at least one step.
fn whole_steps(slots: usize) -> usize {
    (slots / STEP * STEP).max(STEP)
}

/// The number of slots for an arena, where `left` bytes of address space are left.
fn slots_within(left: u64) -> usize {
    let slots = usize::try_from(left / 16).unwrap_or(usize::MAX) / size_of::<Slot>();
    whole_steps(slots.min(FULL))
}

/// How many more bytes of address space the process may use (`ulimit -v`).
fn address_space_left() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: the output is a local variable.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    // Where it cannot be read, as without /proc, a sixteenth of the whole limit still leaves most of it.
    let used = address_space_used().unwrap_or(0);
    limit.rlim_cur.saturating_sub(used)
}

/// Bytes of address space in use.
fn address_space_used() -> Option<u64> {
    let mut text = [0; 128];
    let len = File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let pages = str::from_utf8(text.get(..len)?).ok()?.split(' ').next()?;
    Some(pages.parse::<u64>().ok()? * page_size() as u64)
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours; it is dropped with the table, when no handle is live and no
        // call in progress.
        unsafe {
            let bytes = self.slots * size_of::<Slot>();
            libc::munmap(ptr::with_exposed_provenance_mut(self.base), bytes);
        }
    }
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
    fn arena_takes_at_most_a_sixteenth_of_limited_address_space() {
        const MIB: u64 = 1 << 20;
        assert_eq!(slots_within(u64::MAX), FULL);
        assert_eq!(slots_within(2048 * MIB), FULL);
        assert_eq!(slots_within(2047 * MIB), 127 * STEP);
        assert_eq!(slots_within(32 * MIB), 2 * STEP);
        assert_eq!(slots_within(0), STEP);
        let used = address_space_used().expect("/proc");
        assert!(used > MIB && used < 1 << 47, "{used}");
    }

    /// Pages of a step that are in memory.
    fn resident(arena: &Arena, step: usize) -> usize {
        let mut pages = vec![0; STEP_BYTES / page_size()];
        // SAFETY: the step is mapped, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(arena.step(step), STEP_BYTES, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().map(|page: &u8| usize::from(page & 1)).sum()
    }

    #[test]
    fn memory_of_dead_locked_steps_is_released() {
        let mut arena = Arena::reserve().expect("address space");
        arena.slots = 2 * STEP;
        let slot = take(&mut arena);
        give_back(&mut arena, slot);
        // As mlockall(MCL_FUTURE) would have done, without its effect on other tests.
        // SAFETY: the step is ours.
        if unsafe { libc::mlock(arena.step(0), STEP_BYTES) } != 0 {
            return; // RLIMIT_MEMLOCK is less than a step.
        }
        let slot = take(&mut arena);
        give_back(&mut arena, slot);
        assert_eq!(resident(&arena, 0), STEP_BYTES / page_size(), "this step is in use");
        for _ in 0..STEP {
            let slot = take(&mut arena);
            give_back(&mut arena, slot);
        }
        assert_eq!(resident(&arena, 0), 0, "the next step is in use");
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
}
