//! A kernel: the copy functions of one instruction set.

use super::machine::Cpu;

/// Copies `len` bytes from `src` to `dst`.
///
/// # Safety
/// As for [`write_wc`](super::write_wc) or [`read_wc`](super::read_wc), and the CPU must have the
/// instructions.
pub(super) type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize);

/// Copies a line or a block of fixed size from `src` to `dst`.
///
/// # Safety
/// `src` must be readable and `dst` writable for that size, the device side aligned to it, and the
/// CPU must have the instructions.
pub(super) type BlockFn = unsafe fn(dst: *mut u8, src: *const u8);

/// The copy functions for write-combining mappings that use one instruction set.
#[derive(Debug)]
pub struct Kernel {
    /// What `GDRCOPY_ISA` calls it.
    pub(super) name: &'static str,
    /// Whether the CPU has the instructions.
    pub(super) runs: fn(&Cpu) -> bool,
    pub(super) write: CopyFn,
    pub(super) read: CopyFn,
}

impl Kernel {
    /// What `GDRCOPY_ISA` calls this kernel.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// [`write_wc`](super::write_wc) by this kernel.
    ///
    /// # Safety
    /// As for `write_wc`, and the kernel must be one that [`kernels`](super::kernels) gave out.
    pub unsafe fn write(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; `kernels` gives out what this CPU runs.
        unsafe { super::write(self.write, dst, src, len) }
    }

    /// [`read_wc`](super::read_wc) by this kernel.
    ///
    /// # Safety
    /// As for `read_wc`, and the kernel must be one that [`kernels`](super::kernels) gave out.
    pub unsafe fn read(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function; `kernels` gives out what this CPU runs.
        unsafe { super::read(self.read, dst, src, len) }
    }
}
