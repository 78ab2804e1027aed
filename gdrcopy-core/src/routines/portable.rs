//! Plain loads and stores of at most 8 bytes: runs on every CPU, and suits memory that takes no
//! wider access.

use super::routine::Routine;
use super::{loads, stores};

pub(super) static ROUTINE: Routine = Routine {
    name: "portable",
    write,
    read,
    gather: None,
};

/// # Safety
/// As for [`super::write_wc`].
pub(super) unsafe fn write(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { stores::by_line::<u64, u64>(dst, src, len, stores::line::<u64>) }
}

/// # Safety
/// As for [`super::read_wc`].
pub(super) unsafe fn read(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: contract of this function.
    unsafe { loads::by_line::<8>(dst, src, len, loads::word::<u64>) }
}
