//! Machines without kernels of their own.

use super::kernel::Kernel;
use super::portable;

pub(super) static KERNELS: [&Kernel; 1] = [&portable::KERNEL];

pub(super) struct Cpu;

impl Cpu {
    pub(super) fn detect() -> Self {
        Cpu
    }
}

/// The strongest fence that the language has, on both sides of reads and writes.
pub(super) mod fence {
    use core::sync::atomic::{Ordering, fence};

    pub(in super::super) use full as after_read;
    pub(in super::super) use full as after_write;
    pub(in super::super) use full as before_read;
    pub(in super::super) use full as before_write;

    pub(in super::super) fn full() {
        fence(Ordering::SeqCst);
    }
}
