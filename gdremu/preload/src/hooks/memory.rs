//! Mappings: mmap, munmap, mremap.

use std::ffi::{c_int, c_void};

use gdremu_core::driver::MapRequest;
use gdremu_core::errno::Errno;
use libc::{off_t, size_t};

use super::{fail, from_libc, to_libc};
use crate::devices::Descriptor;
use crate::hints::{device_fds, mapped_range};
use crate::system::file_status;
use crate::{next, state};

/// Flags of a mapping at a fixed address.
const AT_ADDRESS: c_int = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;

/// Arguments of mmap(2), less the address.
#[derive(Clone, Copy)]
struct Arguments {
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
}

/// Spellings of mmap(2).
macro_rules! mmap {
    ($($name:ident),*) => {$(
        pub(crate) unsafe extern "C" fn $name(
            addr: *mut c_void,
            len: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let run = || {
                // SAFETY: the caller's arguments are passed on unchanged.
                unsafe { next::$name()(addr, len, protection, flags, fd, offset) }
            };
            let arguments = Arguments { len, protection, flags, fd, offset };
            if flags & libc::MAP_ANONYMOUS == 0
                && may_be_device(fd)
                && let Some(mapped) = map_device(arguments)
            {
                return mapped;
            }
            if flags & libc::MAP_FIXED != 0 && mapped_range::may_touch(addr as usize, len) {
                return cover(addr as usize, len, run);
            }
            run()
        }
    )*};
}

mmap!(mmap, mmap64);

/// Devices have no blocks, and almost all other mapped files have some.
fn may_be_device(fd: c_int) -> bool {
    device_fds::may_be(fd)
        || file_status(fd).is_some_and(|status| {
            status.st_blocks == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG
        })
}

/// Maps a device, if the descriptor is one.
fn map_device(arguments: Arguments) -> Option<*mut c_void> {
    let mut process = state::enter()?;
    if let Some(mapped) = map_export(&mut process, arguments) {
        return Some(mapped);
    }
    let (identity, file) = match process.descriptor_of(arguments.fd) {
        Descriptor::Own(identity, file) => (identity, file),
        Descriptor::Foreign => return Some(failed(Errno::EACCES)),
        Descriptor::Other => return None,
    };
    // The emulation chooses the address; no known program requests one.
    if arguments.flags & AT_ADDRESS != 0 {
        return Some(failed(Errno::EINVAL));
    }
    let kind = arguments.flags & libc::MAP_TYPE;
    let request = MapRequest {
        len: arguments.len,
        offset: arguments.offset as u64,
        shared: kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE,
        write: arguments.protection & libc::PROT_WRITE != 0,
    };
    Some(match process.mmap(arguments.fd, identity, file, &request) {
        Ok(addr) => protect(addr, arguments),
        Err(errno) => failed(errno),
    })
}

/// Maps a dma-buf, if the descriptor is one.
fn map_export(process: &mut state::Guard, arguments: Arguments) -> Option<*mut c_void> {
    let Arguments { len, fd, offset, .. } = arguments;
    process.exported(fd)?;
    if arguments.flags & AT_ADDRESS != 0 || arguments.flags & libc::MAP_TYPE == libc::MAP_PRIVATE {
        return Some(failed(Errno::EINVAL));
    }
    Some(match process.map_export(fd, offset as u64, len) {
        Ok(addr) => protect(addr, arguments),
        Err(errno) => failed(errno),
    })
}

/// Changes a new readable and writable mapping to the requested protection.
fn protect(addr: usize, arguments: Arguments) -> *mut c_void {
    let addr = addr as *mut c_void;
    if arguments.protection != libc::PROT_READ | libc::PROT_WRITE {
        // SAFETY: `map` just created this mapping.
        unsafe { libc::mprotect(addr, arguments.len, arguments.protection) };
    }
    addr
}

fn failed(errno: Errno) -> *mut c_void {
    fail(errno);
    libc::MAP_FAILED
}

/// A mapping at a fixed address first removes the mappings there, as munmap does.
fn cover(addr: usize, len: usize, run: impl FnOnce() -> *mut c_void) -> *mut c_void {
    match state::enter() {
        Some(mut process) if process.maps(addr, len) => {
            let run = || match run() {
                libc::MAP_FAILED => Err(Errno::last()),
                _ => Ok(()),
            };
            match process.take_away("mmap_fixed", addr, len, run) {
                Ok(()) => addr as *mut c_void,
                Err(errno) => failed(errno),
            }
        }
        _ => run(),
    }
}

pub(crate) unsafe extern "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    // SAFETY: the caller's arguments are passed on unchanged.
    let run = || unsafe { next::munmap()(addr, len) };
    let addr = addr as usize;
    if !mapped_range::may_touch(addr, len) {
        return run();
    }
    match state::enter() {
        Some(mut process) if process.maps(addr, len) => {
            let run = || from_libc(run());
            to_libc(process.take_away("munmap", addr, len, run).map(|()| 0))
        }
        _ => run(),
    }
}

pub(crate) unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    wanted: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's arguments are passed on unchanged.
    let run = || unsafe { next::mremap()(old, old_len, new_len, flags, wanted) };
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let concerns_us = mapped_range::may_touch(old as usize, old_len.max(1))
        || (fixed && mapped_range::may_touch(wanted as usize, new_len));
    if !concerns_us {
        return run();
    }
    match state::enter() {
        Some(process) => {
            remap(process, old as usize, old_len, new_len, flags, wanted as usize, run)
        }
        None => run(),
    }
}

fn remap(
    mut process: state::Guard,
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    wanted: usize,
    run: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if process.maps(old, old_len.max(1)) {
        // The kernel's rules for device memory: it neither grows nor leaves its old place mapped.
        if flags & libc::MREMAP_DONTUNMAP != 0 {
            return failed(Errno::EINVAL);
        }
        if new_len > old_len {
            return failed(Errno::EFAULT);
        }
    }
    let new = run();
    if new == libc::MAP_FAILED {
        return failed(Errno::last());
    }
    if flags & libc::MREMAP_FIXED != 0 {
        process.unmapped(wanted, new_len);
    }
    if new_len < old_len {
        process.unmapped(old + new_len, old_len - new_len);
    }
    if new as usize != old {
        process.moved(old, new_len.min(old_len), new as usize);
    }
    new
}
