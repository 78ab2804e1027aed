//! The functions that the hooks replace: libc's, or those of a library in between.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, off_t, size_t, ssize_t};

/// Finds the next definition of a function behind this library.
fn resolve(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let cached = cache.load(Ordering::Relaxed);
    if !cached.is_null() {
        return cached;
    }
    // SAFETY: `name` ends with a NUL byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // No hook works without the function behind it, and none can report that.
        std::process::abort();
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// For each name, a function that returns the next definition of it.
macro_rules! next {
    ($($name:ident: $function:ty;)*) => {
        $(pub(crate) fn $name() -> $function {
            const NAME: &CStr =
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no NUL byte"),
                };
            static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = resolve(&CACHE, NAME);
            // SAFETY: libc declares the function of this name with this type.
            unsafe { std::mem::transmute::<*mut c_void, $function>(found) }
        })*

        /// Looks up the most frequent functions, so that later calls need no lookup.
        pub(crate) fn warm_up() {
            let _ = (open(), openat(), close(), ioctl(), mmap(), munmap(), fcntl(), read());
        }
    };
}

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type Open2 = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type OpenAt2 = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
type FOpen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
type Access = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type FStat = unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int;
type FStatAt = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
type XStat = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat) -> c_int;
type FXStat = unsafe extern "C" fn(c_int, c_int, *mut libc::stat) -> c_int;
type FXStatAt = unsafe extern "C" fn(c_int, c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
type MMap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
type PRead = unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type PReadChk = unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
type FCntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

next! {
    open: Open;
    open64: Open;
    __open: Open;
    __open64: Open;
    __open_2: Open2;
    __open64_2: Open2;
    openat: OpenAt;
    openat64: OpenAt;
    __openat_2: OpenAt2;
    __openat64_2: OpenAt2;
    fopen: FOpen;
    fopen64: FOpen;
    opendir: unsafe extern "C" fn(*const c_char) -> *mut libc::DIR;
    access: Access;
    eaccess: Access;
    euidaccess: Access;
    faccessat: unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int;
    stat: Stat;
    stat64: Stat;
    lstat: Stat;
    lstat64: Stat;
    fstat: FStat;
    fstat64: FStat;
    fstatat: FStatAt;
    fstatat64: FStatAt;
    __xstat: XStat;
    __xstat64: XStat;
    __lxstat: XStat;
    __lxstat64: XStat;
    __fxstat: FXStat;
    __fxstat64: FXStat;
    __fxstatat: FXStatAt;
    __fxstatat64: FXStatAt;
    readlink: unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> ssize_t;
    __readlink_chk: unsafe extern "C" fn(*const c_char, *mut c_char, size_t, size_t) -> ssize_t;
    readlinkat: unsafe extern "C" fn(c_int, *const c_char, *mut c_char, size_t) -> ssize_t;
    __readlinkat_chk: unsafe extern "C" fn(c_int, *const c_char, *mut c_char, size_t, size_t) -> ssize_t;
    statx: unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut libc::statx) -> c_int;
    ioctl: unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    mmap: MMap;
    mmap64: MMap;
    munmap: unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
    mremap: unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, ...) -> *mut c_void;
    close: unsafe extern "C" fn(c_int) -> c_int;
    __close: unsafe extern "C" fn(c_int) -> c_int;
    close_range: unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
    closefrom: unsafe extern "C" fn(c_int);
    dup: unsafe extern "C" fn(c_int) -> c_int;
    dup2: unsafe extern "C" fn(c_int, c_int) -> c_int;
    __dup2: unsafe extern "C" fn(c_int, c_int) -> c_int;
    dup3: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    read: Read;
    __read: Read;
    __read_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    pread: PRead;
    pread64: PRead;
    __pread64: PRead;
    __pread_chk: PReadChk;
    __pread64_chk: PReadChk;
    fcntl: FCntl;
    fcntl64: FCntl;
    __fcntl: FCntl;
}
