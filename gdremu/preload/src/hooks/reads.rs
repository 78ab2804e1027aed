//! read and pread: from its start, `nv_get_pages_refcount` is always the current number. Streams read without them.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use crate::hints::device_fds;
use crate::{next, proc_files, state};

/// Before a descriptor is read at `offset`; at its own position if there is none.
fn refresh(fd: c_int, offset: Option<off_t>) {
    if !device_fds::may_be(fd) {
        return;
    }
    // SAFETY: only asks for the position.
    let offset = offset.unwrap_or_else(|| unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) });
    if offset == 0
        && proc_files::is_refcount(fd)
        && let Some(mut process) = state::enter()
    {
        proc_files::put(fd, &proc_files::refcount(process.refcount()));
    }
}

/// Spellings of read(2), with their further arguments.
macro_rules! read {
    ($($name:ident($($more:ident: $type:ty),*);)*) => {$(
        pub(crate) unsafe extern "C" fn $name(fd: c_int, to: *mut c_void, len: size_t, $($more: $type),*) -> ssize_t {
            refresh(fd, None);
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe { next::$name()(fd, to, len, $($more),*) }
        }
    )*};
}

read! {
    read();
    __read();
    __read_chk(room: size_t);
}

/// Spellings of pread(2), with their further arguments.
macro_rules! pread {
    ($($name:ident($($more:ident: $type:ty),*);)*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            fd: c_int,
            to: *mut c_void,
            len: size_t,
            offset: off_t,
            $($more: $type),*
        ) -> ssize_t {
            refresh(fd, Some(offset));
            // SAFETY: the caller's arguments are passed on unchanged.
            unsafe { next::$name()(fd, to, len, offset, $($more),*) }
        }
    )*};
}

pread! {
    pread();
    pread64();
    __pread64();
    __pread_chk(room: size_t);
    __pread64_chk(room: size_t);
}
