//! Global memory, as the embedder has it.

use std::sync::atomic::Ordering;

use super::types::Width;

/// Why memory cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Memory that a kernel shares with the CPU. Addresses are multiples of the width. Accesses are
/// single ones, and ordered as the C++ memory model says.
pub trait GlobalMemory {
    /// Reads a value.
    ///
    /// # Errors
    /// The kernel may not read there.
    fn load(&mut self, address: u64, width: Width, order: Ordering) -> Result<u64, Fault>;

    /// Writes the low bytes of a value.
    ///
    /// # Errors
    /// The kernel may not write there.
    fn store(
        &mut self,
        address: u64,
        width: Width,
        value: u64,
        order: Ordering,
    ) -> Result<(), Fault>;

    /// Replaces a value by what `change` makes of it, as one access, and returns the old one.
    ///
    /// # Errors
    /// The kernel may not write there.
    fn update(
        &mut self,
        address: u64,
        width: Width,
        order: Ordering,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;
}
