//! Emulates /proc/driver/gdrdrv/nv_get_pages_refcount, from which programs read how many pins hold memory. Each
//! open gets its own file in memory. Before a read from its start, gdremu writes the current number to the file.

use std::ffi::c_int;

use gdremu_core::errno::Errno;

/// Opens a file in memory that contains the number of pins with memory. `flags` are those of open(2).
pub(crate) fn open(tables: u64, flags: c_int) -> Result<c_int, Errno> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(Errno::EACCES);
    }
    let flags = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name ends with a NUL byte.
    let fd = unsafe { libc::memfd_create(c"gdrdrv-refcount".as_ptr(), flags) };
    if fd < 0 {
        return Err(Errno::last());
    }
    put(fd, tables);
    Ok(fd)
}

/// Replaces the number in a file that [`open`] has made. The descriptor's position in the file does not change.
pub(crate) fn put(fd: c_int, tables: u64) {
    let text = format!("{tables}\n");
    // SAFETY: `text` is readable for its length.
    unsafe {
        libc::pwrite(fd, text.as_ptr().cast(), text.len(), 0);
        libc::ftruncate(fd, text.len() as libc::off_t);
    }
}

pub(crate) fn is_one(fd: c_int) -> bool {
    match std::fs::read_link(format!("/proc/self/fd/{fd}")) {
        Ok(path) => path.as_os_str() == "/memfd:gdrdrv-refcount (deleted)",
        Err(_) => false,
    }
}
