//! AArch64: the routines, those of the widest accesses first. None of them has been measured.
//!
//! LS64 is right for write-combined mappings of a real BAR only. It faults on ordinary memory,
//! where `GDRCOPY_ISA=neon` helps.

mod cpu;
pub(crate) mod fence;
mod ls64;
mod neon;

use core::ptr;

use crate::routines::instructions::Work;
use crate::routines::portable;
use crate::routines::routine::Routine;

static LS64: Routine = Routine { name: "ls64", write: ls64::write, read: ls64::read };

static NEON: Routine = Routine { name: "neon", write: neon::write, read: neon::read };

/// The routines that this CPU runs, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    let neon = [&NEON, &portable::ROUTINE];
    cpu::has_ls64().then_some(&LS64).into_iter().chain(neon)
}

/// Runs a loop by the instructions of a routine, and returns what that returns, or the loop if the routine is none of
/// this architecture.
///
/// # Safety
/// The CPU must run the routine; the rest is as for [`Work::run`].
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(routine: &Routine, work: W) -> Result<bool, W> {
    // SAFETY: contract of this function; the routine's instructions are those of its module.
    unsafe {
        if ptr::eq(routine, &LS64) {
            Ok(work.run::<ls64::Ls64>())
        } else if ptr::eq(routine, &NEON) {
            Ok(work.run::<neon::Neon>())
        } else {
            Err(work)
        }
    }
}
