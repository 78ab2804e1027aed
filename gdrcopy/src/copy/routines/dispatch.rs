//! Which kernel copies: the best that the CPU runs, or the one that `GDRCOPY_ISA` names.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::OsStr;

use super::kernel::Kernel;
use super::machine::{Cpu, KERNELS};
use super::portable;

/// The kernel in use: `FIRST` before the first copy.
///
/// Choosing has no side effect and gives the same answer every time, so threads may race for it,
/// and a fork in its middle leaves nothing half done. The kernels are constants: publishing one
/// needs no ordering.
static SELECTED: AtomicPtr<Kernel> = AtomicPtr::new(ptr::from_ref(&FIRST).cast_mut());

/// Stands in for the kernel that it chooses at its first copy, so that no other copy has to ask
/// whether one is chosen.
static FIRST: Kernel = Kernel {
    name: "first",
    runs: |_| true,
    // SAFETY: the ranges are those of the chosen routine, which this CPU runs.
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
fn selected() -> &'static Kernel {
    // SAFETY: the pointer was made from a `&'static Kernel`, here and in `select`.
    unsafe { &*SELECTED.load(Ordering::Relaxed) }
}

/// Has copies use the kernel that `GDRCOPY_ISA` names, the best one without a request or if the CPU does
/// not run it. Returns that kernel, if it is not the one in use already.
pub fn select(request: Option<&OsStr>) -> Option<&'static Kernel> {
    let name = selected().name;
    // Asking the CPU takes microseconds in a virtual machine: ask again only for a change.
    if request.is_some_and(|request| request == name) || request.is_none() && name == best().name {
        return None;
    }
    let kernel = find(request);
    SELECTED.store(ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
    Some(kernel)
}

#[cold]
fn select_best() -> &'static Kernel {
    SELECTED.store(ptr::from_ref(best()).cast_mut(), Ordering::Relaxed);
    best()
}

/// The best kernel that this CPU runs.
fn best() -> &'static Kernel {
    static BEST: AtomicPtr<Kernel> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: null, or made from a `&'static Kernel` below.
    if let Some(best) = unsafe { BEST.load(Ordering::Relaxed).as_ref() } {
        return best;
    }
    let best = kernels().next().unwrap_or(&portable::KERNEL);
    BEST.store(ptr::from_ref(best).cast_mut(), Ordering::Relaxed);
    best
}

/// The kernel with this name if the CPU runs it, else the best one.
pub fn find(request: Option<&OsStr>) -> &'static Kernel {
    request
        .and_then(|name| kernels().find(|kernel| name == kernel.name))
        .unwrap_or_else(best)
}

/// All kernels that this CPU runs, the best one first.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    let cpu = Cpu::detect();
    KERNELS
        .iter()
        .copied()
        .filter(move |kernel| (kernel.runs)(&cpu))
}
