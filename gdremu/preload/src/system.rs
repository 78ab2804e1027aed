//! Functions that copy memory and describe files by system calls, and convert results to and from libc's -1 and errno.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use gdremu_core::errno::Errno;

/// Copies bytes between addresses of this process. Returns false if one of the addresses is inaccessible.
///
/// # Safety
/// If the memory at `to` is writable, the caller must allow that it is overwritten.
pub(crate) unsafe fn copy_memory(from: *const c_void, to: *mut c_void, len: usize) -> bool {
    let target = libc::iovec { iov_base: to, iov_len: len };
    let source = libc::iovec { iov_base: from.cast_mut(), iov_len: len };
    // SAFETY: Linux checks that both buffers are accessible. `to` may be overwritten: contract of this function.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &target, 1, &source, 1, 0) };
    if copied < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        if error != Some(libc::EFAULT) && !from.is_null() && !to.is_null() {
            // Here, a sandbox denies process_vm_readv. A plain copy works, but crashes if an address is inaccessible.
            // SAFETY: `to` may be overwritten: contract of this function. The buffers are distinct, because one is on
            // the stack of the caller.
            unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast(), len) };
            return true;
        }
    }
    usize::try_from(copied) == Ok(len)
}

pub(crate) fn file_status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is writable, and the call has filled it if it returned 0.
    unsafe {
        if stat_at(fd, c"", status.as_mut_ptr(), libc::AT_EMPTY_PATH) == 0 { Some(status.assume_init()) } else { None }
    }
}

/// Makes the system call fstatat(2). The C library has had a function of this name only since glibc 2.33.
///
/// # Safety
/// `status` is writable.
pub(crate) unsafe fn stat_at(dirfd: c_int, path: &CStr, status: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: contract of this function. On 64-bit platforms, Linux's stat structure is that of the C library.
    unsafe { libc::syscall(libc::SYS_newfstatat, dirfd, path.as_ptr(), status, flags) as c_int }
}

/// Returns whether the program is linked statically. Such a program can load this library only by dlopen, in place of
/// libcuda. Makes only system calls, because many functions of the C library crash in such programs.
pub(crate) fn is_static_program() -> bool {
    let exe = c"/proc/self/exe".as_ptr();
    let mut path = [0_u8; 4096];
    let mut begin = [0_u8; 4096];
    // SAFETY: both buffers are writable for their lengths.
    let (path_len, begin_len) = unsafe {
        let path_len = libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, exe, path.as_mut_ptr(), path.len());
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, exe, libc::O_RDONLY | libc::O_CLOEXEC);
        let begin_len = libc::syscall(libc::SYS_read, fd, begin.as_mut_ptr(), begin.len());
        libc::syscall(libc::SYS_close, fd);
        (path_len, begin_len)
    };
    let path = &path[..usize::try_from(path_len).unwrap_or(0)];
    let begin = &begin[..usize::try_from(begin_len).unwrap_or(0)];
    // If the program was started as `ld.so PROGRAM`, the executable is the dynamic loader. It looks static because it
    // needs no loader itself, but the program that it loads is not static.
    let is_loader = path.rsplit(|c| *c == b'/').next().is_some_and(|name| name.starts_with(b"ld"));
    !is_loader && needs_loader(begin) == Some(false)
}

/// Returns whether an ELF file names a dynamic loader, or `None` if `file`, the bytes at its start, is too short.
fn needs_loader(file: &[u8]) -> Option<bool> {
    let number = |at: usize| Some(usize::from(u16::from_le_bytes([*file.get(at)?, *file.get(at + 1)?])));
    let (first, size, count) = (number(32)?, number(54)?, number(56)?);
    for header in 0..count {
        if number(first + header * size)? == libc::PT_INTERP as usize {
            return Some(true);
        }
    }
    Some(false)
}

/// Prints texts on stderr without allocating.
pub(crate) fn say(texts: &[&str]) {
    for text in texts {
        // SAFETY: the text is readable for its length.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

/// Sets errno and returns -1.
pub(crate) fn fail(errno: Errno) -> c_int {
    // SAFETY: every thread has an errno.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

pub(crate) fn to_libc(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

pub(crate) fn from_libc(result: c_int) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::last()) }
}
