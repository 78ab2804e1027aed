//! A launch of a GPU kernel, with its needs and errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kernel::Kernel;

/// The GPU kernel, its grid and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    /// Blocks of the grid, and threads of each block, by dimension.
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// How many blocks run at the same time, at most.
    pub(crate) resident: u64,
    /// All blocks run at the same time, and have a barrier for all.
    pub(crate) cooperative: bool,
    /// The kernel's parameters, where it expects them.
    pub(crate) parameters: Vec<u8>,
    /// Bytes of shared memory that the launch adds to the kernel's own.
    pub(crate) shared: usize,
    /// The address of the module's variables.
    pub(crate) variables: u64,
}

/// The memory that a GPU kernel shares with the CPU. Addresses are multiples of the size, which is 1, 2, 4 or
/// 8; every access is a single one of this size.
pub(crate) trait GlobalMemory {
    fn load(&mut self, address: u64, size: usize, order: Ordering) -> Result<u64, Fault>;

    fn store(&mut self, address: u64, size: usize, value: u64, order: Ordering) -> Result<(), Fault>;

    /// Changes a value as one atomic access, and returns the old one.
    fn update(&mut self, address: u64, size: usize, order: Ordering, change: &Change<'_>) -> Result<u64, Fault>;
}

/// Computes the new value from the old one.
pub(crate) type Change<'a> = dyn Fn(u64) -> u64 + 'a;

/// A GPU kernel may not access the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Why a thread cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// There is no memory at this address, or the access is not permitted.
    IllegalAddress(u64),
    /// This address is not a multiple of the size of the access.
    MisalignedAddress(u64),
    Explicit,
}

/// A launch that ended early, and the instruction that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) trap: Trap,
    /// The line of the instruction in the PTX text.
    pub(crate) line: u32,
    /// Index of the thread in its block.
    pub(crate) thread: u32,
    /// Index of the block.
    pub(crate) block: u64,
}
