//! gdrdrv's files below /proc.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};

use gdremu_core::config::DriverConfig;
use gdremu_core::errno::Errno;

/// The text of `params`.
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

/// The text of `nv_get_pages_refcount`.
pub(crate) fn refcount(tables: u64) -> String {
    format!("{tables}\n")
}

/// Opens a descriptor for reading a text, with the flags of open(2).
pub(crate) fn open(text: &str, flags: c_int) -> Result<c_int, Errno> {
    let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
    let close_on_exec = if flags & libc::O_CLOEXEC != 0 {
        libc::MFD_CLOEXEC
    } else {
        0
    };
    // As in gdremu-core: the flag distinguishes gdremu's files from those of the library under test.
    let flags = close_on_exec | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a NUL byte.
    let fd = unsafe { libc::memfd_create(c"gdrdrv".as_ptr(), flags) };
    if fd < 0 {
        return Err(errno(std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just created, so nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(text.as_bytes())
        .and_then(|()| file.rewind())
        .map_err(errno)?;
    Ok(file.into_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_are_the_modules_lines() {
        let driver = DriverConfig {
            traditional: true,
            ..DriverConfig::default()
        };
        assert_eq!(
            params(&driver),
            "Version: 2.6\nBuilt for NVIDIA driver flavor: opensource\n\
             Use persistent mapping: no\ndbg_enabled: 1\ninfo_enabled: 0\n"
        );
        assert!(params(&DriverConfig::default()).contains("mapping: yes\n"));
    }

    #[test]
    fn a_text_is_read_from_its_start() {
        let fd = open("12\n", libc::O_CLOEXEC).unwrap();
        // SAFETY: the descriptor was just created, so nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        assert_eq!(std::io::read_to_string(file).unwrap(), "12\n");
    }
}
