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

/// The strongest fence that the language has.
pub(super) mod fence {
    use core::sync::atomic::{Ordering, fence};

    pub(in super::super) fn before_read() {
        full();
    }

    pub(in super::super) fn after_write() {
        full();
    }

    pub(in super::super) fn full() {
        fence(Ordering::SeqCst);
    }
}
