//! Which kernel copies: the best that the CPU runs, or the one that `GDRCOPY_ISA` names.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::env;
use std::ffi::OsString;

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
    write: |dst, src, len| unsafe { (select().write)(dst, src, len) },
    // SAFETY: as above.
    read: |dst, src, len| unsafe { (select().read)(dst, src, len) },
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

#[cold]
fn select() -> &'static Kernel {
    let kernel = choose(env::var_os("GDRCOPY_ISA"));
    SELECTED.store(ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
    kernel
}

/// The kernel called `request`, or the best one if there is no request that the CPU can serve.
fn choose(request: Option<OsString>) -> &'static Kernel {
    let mut kernels = kernels();
    let best = kernels.next().unwrap_or(&portable::KERNEL);
    match request {
        Some(name) if name != best.name => kernels.find(|k| name == k.name).unwrap_or(best),
        _ => best,
    }
}

/// All kernels that this CPU runs, the best one first.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    let cpu = Cpu::detect();
    KERNELS
        .iter()
        .copied()
        .filter(move |kernel| (kernel.runs)(&cpu))
}

/// The name of the kernel in use, as `GDRCOPY_ISA` spells it.
pub fn isa_name() -> &'static str {
    match selected() {
        first if ptr::eq(first, &FIRST) => select().name,
        kernel => kernel.name,
    }
}

/// What `GDRCOPY_ISA` asks for, if that is no kernel which this CPU runs.
pub fn isa_refused() -> Option<OsString> {
    env::var_os("GDRCOPY_ISA").filter(|name| name != isa_name())
}
