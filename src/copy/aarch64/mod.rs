//! AArch64: the kernels, those of the widest accesses first. None of them has been measured.
//!
//! LS64 is right for write-combined mappings of a real BAR alone: it faults on ordinary memory,
//! where `GDRCOPY_ISA=neon` helps.

mod cpu;
pub(super) mod fence;
mod ls64;
mod neon;
mod pair;

pub(super) use cpu::Cpu;

use super::kernel::Kernel;
use super::{LINE, loads, portable, stores};

pub(super) static KERNELS: [&Kernel; 4] = [
    &Kernel {
        name: "ls64",
        runs: |cpu| cpu.ls64,
        write: ls64::write,
        read: ls64::read,
    },
    &Kernel {
        name: "neon",
        runs: |_| true,
        write: neon::write,
        read: neon::read,
    },
    &Kernel {
        name: "pair",
        runs: |_| true,
        write: pair::write,
        read: pair::read,
    },
    &portable::KERNEL,
];

/// Fetches the line at `src` into the caches. Left to the CPU: nothing has been measured.
#[inline(always)]
pub(super) fn prefetch(_src: *const u8) {}
