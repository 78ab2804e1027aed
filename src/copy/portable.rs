//! Plain loads and stores of at most 8 bytes: runs on every CPU, and suits memory that takes no
//! wider access.

use super::kernel::Kernel;
use super::{loads, stores};

pub(super) static KERNEL: Kernel = Kernel {
    name: "portable",
    runs: |_| true,
    write,
    read,
};

/// # Safety
/// As for [`super::write_wc`].
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for the two ranges.
    unsafe { stores::by_line::<u64>(dst, src, len, |to, from| stores::line::<u64>(to, from)) }
}

/// # Safety
/// As for [`super::read_wc`].
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: `by_line` passes an aligned word inside the lines that the caller vouches for, and 8
    // writable bytes.
    unsafe { loads::by_line::<8>(dst, src, len, |to, from| loads::word::<u64>(to, from)) }
}
