//! Two traits: [`Instructions`] are the functions of one copy routine, and [`Work`] is a loop that calls them.

use super::routine::{BlockFn, CopyFn, Item};
use super::shape::{CheckFn, Shaped};
use super::stores;

/// The functions of a copy routine. They are constants, so that loops over many copies can inline them.
pub(super) trait Instructions {
    /// The size in bytes of the block that `LOAD_BLOCK` copies, a power of two from 8 to 64.
    const BLOCK: usize;
    /// Copies an aligned block of `BLOCK` bytes of device memory.
    const LOAD_BLOCK: BlockFn;
    /// True if several loads of `LOAD_BLOCK` can be under way at once, which makes gathers faster.
    const LOADS_OVERLAP: bool = true;
    /// The size in bytes of the block that `LOAD_SMALL` copies, at least 8.
    const SMALL: usize = Self::BLOCK;
    /// Copies an aligned block of `SMALL` bytes of device memory, from which a gather takes a word (see `gather`).
    const LOAD_SMALL: BlockFn = Self::LOAD_BLOCK;
    /// Copies an aligned cache line to device memory.
    const STORE_LINE: BlockFn;
    /// Copies an aligned block of 16 bytes to device memory.
    const STORE_16: BlockFn = stores::block::<u64, 16>;
    /// Copies an aligned block of 32 bytes to device memory.
    const STORE_32: BlockFn = stores::block::<u64, 32>;
    /// The routine's function for a copy to device memory.
    const WRITE: CopyFn;
    /// Makes one write of a batch. It is not called for aligned words of 1, 2, 4 or 8 bytes, which take one store.
    const WRITE_ONE: CopyFn = Self::WRITE;
    /// Does what `WRITE_ONE` does, for 1 to 64 bytes. If it is inlined into a loop over writes of one size, the values
    /// that depend on the size are computed only once.
    const WRITE_PART: CopyFn = Self::WRITE;
    /// The routine's function for a copy from device memory.
    const READ: CopyFn;
    /// Checks copies as [`CheckFn`] says. The default checks none, so that the caller checks all of them.
    const CHECK: CheckFn = |_, _, _| Some((0, 0));
    /// Fetches the cache line at a host address that is about to be stored to. The address may be invalid.
    const FETCH_FOR_STORE: fn(*const u8) = |_| {};
}

/// A loop over many copies.
///
/// The arguments of `run` have at most two words each, so that calls pass them in registers. Words on the stack would
/// take places in the CPU's store buffer, and leave less room there for the writes to the mapping.
pub(super) trait Work {
    /// Runs the loop by the instructions of `I`. Returns whether the copies were made.
    ///
    /// # Safety
    /// The contract of `write_many_unfenced` or `gather`, and the CPU must have the instructions.
    unsafe fn run<I: Instructions>(shape: impl Shaped, count: usize, item: impl Fn(usize) -> Item) -> bool;
}
