//! Which copy routine is used: the best one that the CPU runs, or the one that `GDRCOPY_ISA` names.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::OsStr;

use super::arch;
use super::portable;
use super::routine::Routine;

/// The routine in use: `FIRST` before the first copy.
///
/// Selecting has no side effect and gives the same answer every time, so threads may race for it, and a
/// fork in its middle leaves nothing half done. The routines are constants: publishing one needs no
/// ordering.
static SELECTED: AtomicPtr<Routine> = AtomicPtr::new(ptr::from_ref(&FIRST).cast_mut());

/// Stands in for the best routine before one is selected, so that copies need not test for that.
static FIRST: Routine = Routine {
    name: "first",
    // SAFETY: the ranges are as the best routine needs them, which this CPU runs.
    write: |dst, src, len| unsafe { (select_best().write)(dst, src, len) },
    // SAFETY: as above.
    read: |dst, src, len| unsafe { (select_best().read)(dst, src, len) },
};

/// Writes to a write-combining mapping by the selected routine.
///
/// # Safety
/// As for [`write_wc`](super::write_wc).
#[inline(always)]
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the selected routine is one that this CPU runs.
    unsafe { (selected().write)(dst, src, len) }
}

/// Reads from a write-combining mapping by the selected routine.
///
/// # Safety
/// As for [`read_wc`](super::read_wc).
#[inline(always)]
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function; the selected routine is one that this CPU runs.
    unsafe { (selected().read)(dst, src, len) }
}

#[inline(always)]
fn selected() -> &'static Routine {
    // SAFETY: the pointer was made from a `&'static Routine`, here and in the functions below.
    unsafe { &*SELECTED.load(Ordering::Relaxed) }
}

/// Has copies use the routine that `GDRCOPY_ISA` names; the best one without a request, or if the CPU
/// does not run it. Returns that routine, unless it is the one in use already.
pub fn select(request: Option<&OsStr>) -> Option<&'static Routine> {
    let name = selected().name;
    // Asking the CPU takes microseconds in a virtual machine: ask again only for a change.
    if request.is_some_and(|request| request == name) || request.is_none() && name == best().name {
        return None;
    }
    let routine = find(request);
    SELECTED.store(ptr::from_ref(routine).cast_mut(), Ordering::Relaxed);
    Some(routine)
}

#[cold]
fn select_best() -> &'static Routine {
    SELECTED.store(ptr::from_ref(best()).cast_mut(), Ordering::Relaxed);
    best()
}

/// The best routine that this CPU runs.
fn best() -> &'static Routine {
    static BEST: AtomicPtr<Routine> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: null, or made from a `&'static Routine` below.
    if let Some(best) = unsafe { BEST.load(Ordering::Relaxed).as_ref() } {
        return best;
    }
    let best = arch::supported().next().unwrap_or(&portable::ROUTINE);
    BEST.store(ptr::from_ref(best).cast_mut(), Ordering::Relaxed);
    best
}

/// The routine with this name if the CPU runs it, else the best one.
pub fn find(request: Option<&OsStr>) -> &'static Routine {
    request
        .and_then(|name| arch::supported().find(|routine| name == routine.name))
        .unwrap_or_else(best)
}
