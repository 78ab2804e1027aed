//! Maps, reserves and unmaps memory, and makes the files of emulated GPU memory.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_void, off_t};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

use crate::errno::Errno;

/// Descriptors of GPU memory have numbers from here on, because programs may expect to get the low numbers themselves.
const FIRST_DESCRIPTOR: c_int = 512;

/// # Safety
/// The contract is that of mmap(2). With `MAP_FIXED` in `flags`, the caller owns `[addr, addr + len)`.
unsafe fn mmap(addr: usize, len: usize, prot: c_int, flags: c_int, fd: RawFd, offset: u64) -> Result<usize, Errno> {
    let offset = off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: contract of this function.
    let mapped = unsafe { libc::mmap(addr as *mut c_void, len, prot, flags, fd, offset) };
    if mapped == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(mapped as usize) }
}

/// # Safety
/// The caller owns `[addr, addr + len)`, and no code uses the range any more.
unsafe fn munmap(addr: usize, len: usize) {
    if len > 0 {
        // SAFETY: contract of this function.
        unsafe { libc::munmap(addr as *mut c_void, len) };
    }
}

/// Makes a file of anonymous memory. Linux allocates its pages when they are first accessed.
pub(super) fn memory_file(name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    let len = off_t::try_from(len).map_err(|_| Errno::EINVAL)?;
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
    ftruncate(&file, len)?;
    Ok(out_of_the_way(file))
}

/// Moves the file to a descriptor number of `FIRST_DESCRIPTOR` or higher, if one is free.
pub fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    // SAFETY: fcntl has no preconditions here, and no other code owns the descriptor that it returns.
    unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) {
            -1 => file,
            high => OwnedFd::from_raw_fd(high),
        }
    }
}

/// Gives the pages of a part of a file back to Linux. From then on, the part reads as zeros in every mapping.
pub(super) fn punch(file: BorrowedFd<'_>, offset: u64, len: u64) {
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    // A failure only leaves old data in freed memory.
    let _ = fallocate(file, mode, offset as off_t, len as off_t);
}

/// Reserves `len` bytes of address space that start at a multiple of `align`. Both are multiples of the page size. The
/// range has no memory, and every access raises SIGSEGV.
pub(super) fn reserve(len: usize, align: usize) -> Result<usize, Errno> {
    // Linux aligns mappings to pages only. The parts before and behind the aligned part are unmapped again.
    let with_slack = len.saturating_add(align - page_size());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: no address is requested, so nothing is replaced.
    let start = unsafe { mmap(0, with_slack, libc::PROT_NONE, flags, -1, 0)? };
    let aligned = start.next_multiple_of(align);
    // SAFETY: both ranges lie in the mapping that was just made, before and behind the aligned part.
    unsafe {
        munmap(start, aligned - start);
        munmap(aligned + len, start + with_slack - (aligned + len));
    }
    Ok(aligned)
}

#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub file: BorrowedFd<'a>,
    pub offset: u64,
    pub len: usize,
}

/// Maps parts of files one behind the other. The mapping is shared, readable, writable, and absent from forked
/// children. `fixed` is the address that the program gave with `MAP_FIXED`. Without it, Linux chooses the address.
pub fn map_parts(parts: &[Part<'_>], fixed: Option<usize>) -> Result<usize, Errno> {
    let len = parts.iter().map(|part| part.len).sum();
    let start = match fixed {
        Some(addr) => addr,
        None => reserve(len, page_size())?,
    };
    let mut at = start;
    for part in parts {
        // SAFETY: the parts fill the reservation just made, or the range that the program gives up by `MAP_FIXED`.
        if let Err(error) = unsafe { replace(at, part.len, part.file, part.offset) } {
            if fixed.is_none() {
                // SAFETY: no other code knows the addresses.
                unsafe { munmap(start, len) };
            }
            return Err(error);
        }
        at += part.len;
    }
    Ok(start)
}

/// Replaces `[addr, addr + len)` by memory that raises SIGBUS when accessed. That needs a new descriptor. If the
/// process has none left, accesses raise SIGSEGV.
///
/// # Safety
/// No code in this process uses the range any more. The range is a mapping of the emulated driver.
pub(super) unsafe fn poison(addr: usize, len: usize) {
    // Maps an empty file, because accesses of a page beyond the end of a mapped file raise SIGBUS.
    let replaced = match memory_file(c"gdremu-zapped", 0) {
        // SAFETY: no code uses the range any more: contract of this function.
        Ok(empty) => unsafe { replace(addr, len, empty.as_fd(), 0) },
        Err(errno) => Err(errno),
    };
    if let Err(error) = replaced {
        eprintln!("gdremu: {error}: accesses of unpinned GPU memory raise SIGSEGV, not SIGBUS");
        // SAFETY: no code uses the range any more: contract of this function.
        unsafe { libc::mprotect(addr as *mut c_void, len, libc::PROT_NONE) };
    }
}

/// # Safety
/// The contract is that of mmap(2) with `MAP_FIXED`.
unsafe fn replace(addr: usize, len: usize, file: BorrowedFd<'_>, offset: u64) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the caller owns the range: contract of this function.
    unsafe {
        mmap(addr, len, prot, flags, file.as_raw_fd(), offset)?;
        libc::madvise(addr as *mut c_void, len, libc::MADV_DONTFORK);
    }
    Ok(())
}

pub fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A mapping of GPU memory for the emulator's own copies, separate from the mappings that the program makes.
pub(super) struct View {
    addr: usize,
    len: usize,
}

impl View {
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<View, Errno> {
        let len = len as usize;
        Ok(View { addr: map_parts(&[Part { file, offset, len }], None)?, len })
    }

    /// Returns the address at which `[offset, offset + len)` is mapped while this view lives.
    ///
    /// # Panics
    /// If the range is not inside the view.
    pub(super) fn bytes(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(len <= self.len as u64 && offset <= self.len as u64 - len);
        ptr::with_exposed_provenance_mut(self.addr + offset as usize)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: only the view owns the mapping, and pointers from `bytes` are not used after the view is dropped.
        unsafe { munmap(self.addr, self.len) };
    }
}
