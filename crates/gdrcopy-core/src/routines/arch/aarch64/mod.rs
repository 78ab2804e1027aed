//! The copy routine and the fences of AArch64. The routine uses NEON. Its speed was not measured.

pub(crate) mod fence;
mod neon;

use core::ptr;

use crate::routines::instructions::Work;
use crate::routines::portable;
use crate::routines::routine::{Item, Routine};
use crate::routines::shape::Shaped;

static NEON: Routine = Routine { name: "neon", write: neon::write, write_one: neon::write, read: neon::read };

/// Returns the routines, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    [&NEON, &portable::ROUTINE].into_iter()
}

/// Runs the loop `W` by `routine`'s instructions. Returns `None` if the routine is not specific to this architecture.
///
/// # Safety
/// The contract of [`Work::run`].
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item,
) -> Option<bool> {
    // SAFETY: contract of this function. NEON is part of the base architecture.
    unsafe { if ptr::eq(routine, &NEON) { Some(W::run::<neon::Neon>(shape, count, item)) } else { None } }
}
