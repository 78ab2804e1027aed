//! What a copy routine is: the copy functions of one instruction set.

/// Bytes of one cache line, the largest unit that crosses PCIe undivided.
pub(super) const LINE: usize = 64;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// As for [`write_wc`](super::write_wc) or [`read_wc`](super::read_wc), and the CPU must have the
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
    /// What `GDRCOPY_ISA` calls it.
    pub(crate) name: &'static str,
    pub(crate) write: CopyFn,
    pub(crate) read: CopyFn,
    /// Reads many small ranges, with the most loads in flight; `None` if `read` for each does it too.
    pub(crate) gather: Option<GatherFn>,
}

/// One range of a gather.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Host memory, writable for `len` bytes.
    pub dst: *mut u8,
    /// A mapping, readable as for [`read_wc`](super::read_wc).
    pub src: *const u8,
    /// Bytes.
    pub len: usize,
}

/// Copies each item.
///
/// # Safety
/// The items are as described there, and the CPU must have the instructions.
pub(crate) type GatherFn = unsafe fn(items: &[Item]);

impl Routine {
    /// What `GDRCOPY_ISA` calls it.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
