//! gdrdrv's files below /proc.

use std::ffi::{CStr, c_int};
use std::path::Path;

use gdremu_core::config::DriverConfig;
use gdremu_core::errno::Errno;

pub(crate) fn params(driver: &DriverConfig) -> String {
    let persistent = if driver.persistent() { "yes" } else { "no" };
    format!(
        "Version: {}\n\
         Built for NVIDIA driver flavor: opensource\n\
         Use persistent mapping: {persistent}\n\
         dbg_enabled: 1\n\
         info_enabled: 0\n",
        driver.version
    )
}

pub(crate) fn refcount(tables: u64) -> String {
    format!("{tables}\n")
}

/// The names of descriptors of `params` and of `nv_get_pages_refcount` in /proc/self/fd.
pub(crate) const PARAMS: &CStr = c"gdrdrv";
pub(crate) const REFCOUNT: &CStr = c"gdrdrv-refcount";

/// Opens a descriptor for reading a text, with the flags of open(2).
pub(crate) fn open(name: &CStr, text: &str, flags: c_int) -> Result<c_int, Errno> {
    let close_on_exec = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // As in gdremu-core, the flag distinguishes gdremu's files from those of the library under test.
    let flags = close_on_exec | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a NUL byte.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(Errno::last());
    }
    put(fd, text);
    Ok(fd)
}

/// Replaces the text of a descriptor; its position stays.
pub(crate) fn put(fd: c_int, text: &str) {
    // SAFETY: `text` is readable for its length.
    unsafe {
        libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0);
        libc::ftruncate(fd, text.len() as libc::off_t);
    }
}

/// Returns whether a descriptor is one of `nv_get_pages_refcount`.
pub(crate) fn is_refcount(fd: c_int) -> bool {
    let name = REFCOUNT.to_str().expect("ASCII");
    std::fs::read_link(format!("/proc/self/fd/{fd}"))
        .is_ok_and(|path| path == Path::new(&format!("/memfd:{name} (deleted)")))
}
