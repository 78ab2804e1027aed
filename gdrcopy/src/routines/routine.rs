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
    pub(super) name: &'static str,
    pub(super) write: CopyFn,
    pub(super) read: CopyFn,
}

impl Routine {
    /// What `GDRCOPY_ISA` calls it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A routine of these functions.
    pub(crate) const fn new(name: &'static str, write: CopyFn, read: CopyFn) -> Routine {
        Routine { name, write, read }
    }

    /// Writes without fences.
    ///
    /// # Safety
    /// As for [`write_wc`](super::write_wc).
    pub(crate) unsafe fn write_unfenced(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function.
        unsafe { (self.write)(dst, src, len) }
    }

    /// Reads without fences.
    ///
    /// # Safety
    /// As for [`read_wc`](super::read_wc).
    pub(crate) unsafe fn read_unfenced(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function.
        unsafe { (self.read)(dst, src, len) }
    }
}
