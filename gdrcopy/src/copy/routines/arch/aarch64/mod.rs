//! AArch64: the kernels, those of the widest accesses first. None of them has been measured.
//!
//! LS64 is right for write-combined mappings of a real BAR alone: it faults on ordinary memory,
//! where `GDRCOPY_ISA=neon` helps.

mod cpu;
pub(super) mod fence;
mod ls64;
mod neon;

pub(super) use cpu::Cpu;

use super::kernel::Kernel;
use super::{loads, portable, stores};

pub(super) static KERNELS: [&Kernel; 3] = [
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
    &portable::KERNEL,
];
