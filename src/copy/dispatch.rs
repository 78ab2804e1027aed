//! Which kernel copies: the best that the CPU runs, or the one that `GDRCOPY_ISA` names.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::env;
use std::ffi::OsString;

use super::kernel::Kernel;
use super::machine::{Cpu, KERNELS};
use super::portable;

/// The kernel in use, null before the first copy.
///
/// Choosing has no side effect and gives the same answer every time, so threads may race for it,
/// and a fork in its middle leaves nothing half done. The kernels are constants: publishing one
/// needs no ordering.
static SELECTED: AtomicPtr<Kernel> = AtomicPtr::new(ptr::null_mut());

/// The kernel that copies of write-combining mappings use.
#[inline]
pub(super) fn selected() -> &'static Kernel {
    let selected = SELECTED.load(Ordering::Relaxed);
    // SAFETY: a pointer that is not null was made from a `&'static Kernel` in `select`.
    unsafe { selected.as_ref() }.unwrap_or_else(select)
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
    selected().name
}

/// What `GDRCOPY_ISA` asks for, if that is no kernel which this CPU runs.
pub fn isa_refused() -> Option<OsString> {
    env::var_os("GDRCOPY_ISA").filter(|name| name != isa_name())
}
