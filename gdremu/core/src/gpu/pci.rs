//! The addresses of the emulated GPUs on the PCI bus.
#![forbid(unsafe_code)]

pub const DEVICES: &str = "/sys/bus/pci/devices";

pub const VENDOR: u32 = 0x10de;

/// The PCI subsystem id, which is that of an H100 board.
pub const SUBSYSTEM: u32 = 0x1626;

/// The bus of the first GPU. The bus of each further GPU is 16 higher.
const FIRST_BUS: usize = 0x1b;

/// Returns the PCI bus of a GPU. A PCI domain has 256 buses, so number 256 is bus 0 of domain 1.
pub fn bus(gpu: usize) -> usize {
    FIRST_BUS + 16 * gpu
}

/// Returns the PCI address of a GPU, with capital letters as CUDA writes it.
pub fn address(gpu: usize) -> String {
    format!("{:04X}:{:02X}:00.0", bus(gpu) >> 8, bus(gpu) & 0xff)
}
