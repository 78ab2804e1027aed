//! A launch of a GPU kernel: what it runs, what it needs, how it can fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kernel::Kernel;

/// What to run. Grid and block have one dimension.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The GPU kernel.
    pub(crate) kernel: Arc<Kernel>,
    /// Blocks. All of them run side by side.
    pub(crate) grid: u32,
    /// Threads of each block.
    pub(crate) block: u32,
    /// A value for each of the kernel's parameters.
    pub(crate) parameters: Vec<u64>,
}

/// The memory that a GPU kernel shares with the CPU. Addresses are multiples of 4.
pub(crate) trait GlobalMemory {
    /// Reads a word.
    ///
    /// # Errors
    /// The GPU kernel may not read there.
    fn load(&mut self, address: u64, order: Ordering) -> Result<u32, Fault>;

    /// Writes a word.
    ///
    /// # Errors
    /// The GPU kernel may not write there.
    fn store(&mut self, address: u64, value: u32, order: Ordering) -> Result<(), Fault>;

    /// Adds to a word as one atomic access, and returns the old value.
    ///
    /// # Errors
    /// The GPU kernel may not write there.
    fn add(&mut self, address: u64, value: u32, order: Ordering) -> Result<u32, Fault>;
}

/// A GPU kernel may not access the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Why a thread cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// There is no memory at this address, or the access is not permitted.
    IllegalAddress(u64),
    /// This address is not a multiple of 4.
    MisalignedAddress(u64),
}

/// A launch that ended early, and the instruction that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// What is wrong.
    pub(crate) trap: Trap,
    /// The line of the instruction in the PTX text.
    pub(crate) line: u32,
    /// Index of the thread in its block.
    pub(crate) thread: u32,
    /// Index of the block.
    pub(crate) block: u32,
}
