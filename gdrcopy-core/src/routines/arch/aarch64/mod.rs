//! AArch64: the routines, those of the widest accesses first. None of them has been measured.
//!
//! LS64 is right for write-combined mappings of a real BAR only. It faults on ordinary memory,
//! where `GDRCOPY_ISA=neon` helps.

mod cpu;
pub(crate) mod fence;
mod ls64;
mod neon;

use cpu::Cpu;

use crate::routines::portable;
use crate::routines::routine::Routine;

static LS64: Routine = Routine { name: "ls64", write: ls64::write, read: ls64::read, blocks: Some(ls64::BLOCKS) };

static NEON: Routine = Routine { name: "neon", write: neon::write, read: neon::read, blocks: Some(neon::BLOCKS) };

/// The routines that this CPU runs, best first.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    let cpu = Cpu::detect();
    let neon = [&NEON, &portable::ROUTINE];
    cpu.ls64.then_some(&LS64).into_iter().chain(neon)
}
