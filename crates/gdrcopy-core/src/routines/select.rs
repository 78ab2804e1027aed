//! Chooses a copy routine, which is the best one that the CPU runs, or the one that `GDRCOPY_ISA` names.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::OsStr;

use super::arch;
use super::portable;
use super::routine::Routine;

/// Returns the best routine that this CPU runs.
///
/// CPUID takes microseconds in a virtual machine, so the result is kept. Detection has no side effect and
/// always gives the same result, so threads may race for it, and a fork in between does no harm.
pub fn best() -> &'static Routine {
    static BEST: AtomicPtr<Routine> = AtomicPtr::new(ptr::null_mut());
    // SAFETY: the pointer is null, or was made from a `&'static Routine` below.
    if let Some(best) = unsafe { BEST.load(Ordering::Relaxed).as_ref() } {
        return best;
    }
    let best = arch::supported().next().unwrap_or(&portable::ROUTINE);
    BEST.store(ptr::from_ref(best).cast_mut(), Ordering::Relaxed);
    best
}

/// Returns the routine with this name if the CPU runs it, else the best one.
pub fn find(request: Option<&OsStr>) -> &'static Routine {
    request.and_then(|name| arch::supported().find(|routine| name == routine.name)).unwrap_or_else(best)
}
