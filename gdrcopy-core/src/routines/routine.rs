//! A copy routine, that is the copy functions of one instruction set.

/// Bytes of one cache line, the largest unit that crosses PCIe undivided.
pub(super) const LINE: usize = 64;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// The contract of [`write()`](super::write) or [`read`](super::read), and the CPU must have the
/// instructions.
pub(crate) type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize);

/// Copies a line or a block of fixed size from `src` to `dst`.
///
/// # Safety
/// `src` must be readable and `dst` writable for that size, the device side aligned to it, and the
/// CPU must have the instructions.
pub(super) type BlockFn = unsafe fn(dst: *mut u8, src: *const u8);

/// The copy functions for write-combining mappings that use one instruction set.
#[derive(Debug)]
pub struct Routine {
    /// Its name in `GDRCOPY_ISA`.
    pub(crate) name: &'static str,
    pub(crate) write: CopyFn,
    pub(crate) read: CopyFn,
    /// How gathers load; `None` if they are to use `read`.
    pub(crate) blocks: Option<Blocks>,
}

/// The loads of gathers.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Bytes of one load, or of a few that are issued together, as a power of two, 8 to 64.
    pub(super) size: usize,
    pub(super) load: LoadBlocksFn,
}

/// Loads the block that each of `blocks` is an address in, in order, to the next `size` bytes of `buffer`. Few
/// instructions are between the loads.
///
/// # Safety
/// The blocks, which are aligned to their size, must be readable; `buffer` must be writable for all of them, and aligned to a
/// line. The CPU must have the instructions.
pub(super) type LoadBlocksFn = unsafe fn(buffer: *mut u8, blocks: &[*const u8]);

/// One of many copies.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Writable for `len` bytes.
    pub dst: *mut u8,
    /// Readable for `len` bytes; a mapping as for [`read`](super::read).
    pub src: *const u8,
    /// Bytes.
    pub len: usize,
}

impl Routine {
    /// Its name in `GDRCOPY_ISA`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
