//! The data that every copy reads, on one cache line.
//!
//! The data is written only when a copy routine is selected and, once the process has had mappings of two types, when
//! a mapping is made. So the cache line stays in the caches of the CPUs that copy.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::routines::{self, Routine};
use crate::types::MappingType;

/// One cache line of data. It is aligned to two cache lines, because some CPUs prefetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Hot {
    /// The copy routines, indexed by the mapping type's number. Only the one for write-combining mappings changes.
    routines: [AtomicPtr<Routine>; 4],
    /// True once the process has had mappings of two types (see `copy::mixed`).
    pub(crate) mixed: AtomicBool,
}

const fn pointer(routine: &'static Routine) -> AtomicPtr<Routine> {
    AtomicPtr::new(ptr::from_ref(routine).cast_mut())
}

pub(crate) static HOT: Hot = Hot {
    routines: [
        pointer(&FIRST), // No mapping type has the number 0.
        pointer(&FIRST),
        pointer(&routines::CACHED),
        pointer(&routines::DEVICE),
    ],
    mixed: AtomicBool::new(false),
};

impl Hot {
    /// Returns this CPU's routine for mappings of this type. Routines are constants, so the load needs no ordering.
    #[inline(always)]
    pub(crate) fn routine(&self, mapping_type: MappingType) -> &'static Routine {
        // SAFETY: the pointer was made from a `&'static Routine`, in `HOT` or in `set_routine`.
        unsafe { &*self.routines[mapping_type as usize].load(Ordering::Relaxed) }
    }

    /// Selects this routine for write-combining mappings. Callers pass a routine that this CPU can run.
    pub(crate) fn set_routine(&self, routine: &'static Routine) {
        let routine = ptr::from_ref(routine).cast_mut();
        self.routines[MappingType::WriteCombining as usize].store(routine, Ordering::Relaxed);
    }
}

/// The routine for write-combining mappings until one is selected. It selects the best routine at the first copy, so
/// that copies need not test whether a routine is selected.
static FIRST: Routine = Routine {
    name: routines::FIRST,
    // SAFETY: contract of `CopyFn`; the CPU supports the best routine.
    write: |dst, src, len| unsafe { (select_best().write)(dst, src, len) },
    // SAFETY: contract of `CopyFn`; the CPU supports the best routine.
    write_one: |dst, src, len| unsafe { (select_best().write_one)(dst, src, len) },
    // SAFETY: contract of `CopyFn`; the CPU supports the best routine.
    read: |dst, src, len| unsafe { (select_best().read)(dst, src, len) },
};

#[cold]
fn select_best() -> &'static Routine {
    HOT.set_routine(routines::best());
    routines::best()
}
