//! The table of the libc functions that gdremu replaces by hooks. For each, it has the definition that the hook calls:
//! libc's, or that of another preloaded library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

use gdremu_core::c_text;
use libc::{DIR, FILE, off_t, size_t, ssize_t};

use crate::system::say;

/// A pointer from the program to a path or other text. It is NULL, or the text ends with a NUL byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) const fn of(text: &'a CStr) -> Text<'a> {
        Text(text.as_ptr(), PhantomData)
    }

    pub(crate) fn get(self) -> Option<&'a CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the text ends with a NUL byte: the program must ensure this for libc, and `Text::of` takes a `CStr`.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

pub(crate) type Pointer = *mut c_void;
/// `struct stat64` is `struct stat` on the 64-bit platforms that gdrdrv supports.
pub(crate) type Stat = *mut libc::stat;
pub(crate) type Statx = *mut libc::statx;

/// Calls a macro with the description of all hooks:
///
/// ```text
/// open, open64 (path: Text, flags: c_int; mode: mode_t) -> c_int => files::open(…, |path| next(path, flags, mode));
/// ```
///
/// An entry begins with all names of one function. An argument after the semicolon is optional in C (`...`). The hook
/// reads it even if it was not passed. The expression is the hook's body. There, `next` is the function that the
/// program would have called without gdremu.
macro_rules! hooks {
    ($declare:ident) => { $declare! { next;
        access, eaccess, euidaccess (path: Text, wanted: c_int) -> c_int
            => exists::access(AT_FDCWD, path, wanted, |path| next(path, wanted));
        faccessat (dirfd: c_int, path: Text, wanted: c_int, flags: c_int) -> c_int
            => exists::access(dirfd, path, wanted, |path| next(dirfd, path, wanted, flags));
        stat, stat64, lstat, lstat64 (path: Text, status: Stat) -> c_int
            => exists::stat(AT_FDCWD, path, status, |path| next(path, status));
        fstatat, fstatat64 (dirfd: c_int, path: Text, status: Stat, flags: c_int) -> c_int
            => exists::stat(dirfd, path, status, |path| next(dirfd, path, status, flags));
        __xstat, __xstat64, __lxstat, __lxstat64 (version: c_int, path: Text, status: Stat) -> c_int
            => exists::stat(AT_FDCWD, path, status, |path| next(version, path, status));
        __fxstatat, __fxstatat64 (version: c_int, dirfd: c_int, path: Text, status: Stat, flags: c_int) -> c_int
            => exists::stat(dirfd, path, status, |path| next(version, dirfd, path, status, flags));
        fstat, fstat64 (fd: c_int, status: Stat) -> c_int => exists::fstat(fd, status, || next(fd, status));
        __fxstat, __fxstat64 (version: c_int, fd: c_int, status: Stat) -> c_int
            => exists::fstat(fd, status, || next(version, fd, status));
        statx (dirfd: c_int, path: Text, flags: c_int, mask: c_uint, status: Statx) -> c_int
            => exists::statx(dirfd, path, status, |path| next(dirfd, path, flags, mask, status));
        readlink (path: Text, text: *mut c_char, len: size_t) -> ssize_t
            => at_stand_in(AT_FDCWD, path, |path| next(path, text, len));
        __readlink_chk (path: Text, text: *mut c_char, len: size_t, room: size_t) -> ssize_t
            => at_stand_in(AT_FDCWD, path, |path| next(path, text, len, room));
        readlinkat (dirfd: c_int, path: Text, text: *mut c_char, len: size_t) -> ssize_t
            => at_stand_in(dirfd, path, |path| next(dirfd, path, text, len));
        __readlinkat_chk (dirfd: c_int, path: Text, text: *mut c_char, len: size_t, room: size_t) -> ssize_t
            => at_stand_in(dirfd, path, |path| next(dirfd, path, text, len, room));

        open, open64, __open, __open64 (path: Text, flags: c_int; mode: mode_t) -> c_int
            => files::open(AT_FDCWD, path, flags, |path| next(path, flags, mode));
        openat, openat64 (dirfd: c_int, path: Text, flags: c_int; mode: mode_t) -> c_int
            => files::open(dirfd, path, flags, |path| next(dirfd, path, flags, mode));
        // Programs that are built with _FORTIFY_SOURCE call these instead of open and openat.
        __open_2, __open64_2 (path: Text, flags: c_int) -> c_int
            => files::open(AT_FDCWD, path, flags, |path| next(path, flags));
        __openat_2, __openat64_2 (dirfd: c_int, path: Text, flags: c_int) -> c_int
            => files::open(dirfd, path, flags, |path| next(dirfd, path, flags));
        fopen, fopen64 (path: Text, mode: Text) -> *mut FILE => files::fopen(path, mode, |path| next(path, mode));
        opendir (path: Text) -> *mut DIR => at_stand_in(AT_FDCWD, path, |path| next(path));
        close, __close (fd: c_int) -> c_int => files::close(fd, || next(fd));
        close_range (first: c_uint, last: c_uint, flags: c_int) -> c_int
            => files::close_range(|| next(first, last, flags));
        closefrom (first: c_int) -> () => files::close_range(|| next(first));
        dup (old: c_int) -> c_int => files::duplicated(old, next(old));
        dup2, __dup2 (old: c_int, new: c_int) -> c_int => files::dup2(old, new, || next(old, new));
        dup3 (old: c_int, new: c_int, flags: c_int) -> c_int => files::dup2(old, new, || next(old, new, flags));
        fcntl, fcntl64, __fcntl (fd: c_int, command: c_int; argument: usize) -> c_int
            => files::fcntl(fd, command, next(fd, command, argument));

        ioctl (fd: c_int, request: c_ulong; argument: Pointer) -> c_int
            => io::ioctl(fd, request, argument, || next(fd, request, argument));
        read, __read (fd: c_int, to: Pointer, len: size_t) -> ssize_t => files::read(fd, None, || next(fd, to, len));
        __read_chk (fd: c_int, to: Pointer, len: size_t, room: size_t) -> ssize_t
            => files::read(fd, None, || next(fd, to, len, room));
        pread, pread64, __pread64 (fd: c_int, to: Pointer, len: size_t, offset: off_t) -> ssize_t
            => files::read(fd, Some(offset), || next(fd, to, len, offset));
        __pread_chk, __pread64_chk (fd: c_int, to: Pointer, len: size_t, offset: off_t, room: size_t) -> ssize_t
            => files::read(fd, Some(offset), || next(fd, to, len, offset, room));

        mmap, mmap64 (addr: Pointer, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> Pointer
            => mappings::mmap(addr, len, protection, flags, fd, offset, || next(addr, len, protection, flags, fd, offset));
        munmap (addr: Pointer, len: size_t) -> c_int => mappings::munmap(addr as usize, len, || next(addr, len));
        mremap (old: Pointer, old_len: size_t, new_len: size_t, flags: c_int; wanted: Pointer) -> Pointer
            => mappings::mremap(old as usize, old_len, new_len, flags, wanted as usize,
                              || next(old, old_len, new_len, flags, wanted));
    } };
}
pub(crate) use hooks;

fn resolve(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let cached = cache.load(Ordering::Relaxed);
    if !cached.is_null() {
        return cached;
    }
    // SAFETY: `name` ends with a NUL byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The hook needs the function that it replaces, so the program cannot continue.
        let name = name.to_str().unwrap_or_default();
        say(&["gdremu: the program calls ", name, ", which this system's C library does not have\n"]);
        std::process::abort();
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// For each hooked name, defines a function that returns the address which programs would call without gdremu: that of
/// the next definition of the name in the order in which the loader searches libraries.
macro_rules! next {
    ($_next:ident; $($($name:ident),* ($($arguments:tt)*) -> $result:ty => $_body:expr;)*) => {
        $(next! { @each ($($arguments)*) $result, $($name)* })*
    };
    (@each $arguments:tt $result:ty, $($name:ident)*) => {
        $(next! { @one $name $arguments $result })*
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) $result:ty) => {
        next! { @typed $name unsafe extern "C" fn($($type),*) -> $result }
    };
    (@one $name:ident ($($argument:ident: $type:ty),*; $_more:ident: $_more_type:ty) $result:ty) => {
        next! { @typed $name unsafe extern "C" fn($($type),*, ...) -> $result }
    };
    (@typed $name:ident $function:ty) => {
        pub(crate) fn $name() -> $function {
            const NAME: &CStr = c_text(concat!(stringify!($name), "\0"));
            static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = resolve(&CACHE, NAME);
            // SAFETY: libc declares the function of this name with this type.
            unsafe { std::mem::transmute::<Pointer, $function>(found) }
        }
    };
}

hooks!(next);

/// Looks up the functions that programs call most, so that their first calls need no lookup.
pub(crate) fn warm_up() {
    let _ = (open(), openat(), close(), ioctl(), mmap(), munmap(), fcntl(), read());
}
