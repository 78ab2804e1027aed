//! The system that the program runs on, with CPUs, files of the kernel, devices, processes.

pub(crate) mod bytes;
pub(crate) mod cpu;
pub(crate) mod files;
pub(crate) mod gdrdrv;
pub(crate) mod interrupt;
pub(crate) mod pci;
pub(crate) mod process;
