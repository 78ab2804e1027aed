//! The system that the program runs on, with its CPUs, the kernel's files, devices and processes.

pub(crate) mod bytes;
pub(crate) mod cpu;
pub(crate) mod files;
pub(crate) mod gdrdrv;
pub(crate) mod interrupt;
pub(crate) mod pci;
pub(crate) mod process;
