//! Mappings: mmap, munmap, mremap.

use std::ffi::c_int;

use gdremu_core::driver::MapRequest;
use gdremu_core::errno::Errno;
use gdremu_core::gpu::page_size;
use libc::{off_t, size_t};

use super::results::{fail, from_libc, to_libc};
use crate::descriptors::Descriptor;
use crate::hints::{device_fds, mapped_range};
use crate::next::Pointer;
use crate::state;
use crate::system::file_status;

/// Arguments of mmap(2), less the address.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    pub(super) len: size_t,
    pub(super) protection: c_int,
    pub(super) flags: c_int,
    pub(super) fd: c_int,
    pub(super) offset: off_t,
}

pub(super) fn mmap(addr: Pointer, arguments: Arguments, next: impl FnOnce() -> Pointer) -> Pointer {
    let Arguments { len, flags, fd, .. } = arguments;
    if flags & libc::MAP_ANONYMOUS == 0
        && may_be_device(fd)
        && let Some(mapped) = map_device(addr, arguments)
    {
        return mapped;
    }
    if flags & libc::MAP_FIXED != 0 && mapped_range::may_touch(addr as usize, len) {
        return cover(addr as usize, len, next);
    }
    next()
}

/// Devices have no blocks, and almost all other mapped files have some.
fn may_be_device(fd: c_int) -> bool {
    device_fds::may_be(fd)
        || file_status(fd).is_some_and(|status| status.st_blocks == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Maps a device or a dma-buf, if the descriptor is one.
fn map_device(addr: Pointer, arguments: Arguments) -> Option<Pointer> {
    let Arguments { len, protection, flags, fd, offset } = arguments;
    let mut process = state::enter()?;
    let fixed = (flags & libc::MAP_FIXED != 0).then_some(addr as usize);
    // No known program maps memory of the GPU over other such memory, or makes the kernel check that there is none.
    let is_refused = flags & libc::MAP_FIXED_NOREPLACE != 0
        || fixed.is_some_and(|at| !at.is_multiple_of(page_size()) || process.driver.maps(at, len));
    let kind = flags & libc::MAP_TYPE;
    let mapped = match process.descriptors.find(fd) {
        Descriptor::Other => return None,
        Descriptor::Foreign => Err(Errno::EACCES),
        Descriptor::Export(..) if is_refused || kind == libc::MAP_PRIVATE => Err(Errno::EINVAL),
        Descriptor::Export(file, export) => process.map_export(file, export, offset as u64, len, fixed),
        Descriptor::Device(_) if is_refused => Err(Errno::EINVAL),
        Descriptor::Device(file) => {
            let request = MapRequest {
                len,
                offset: offset as u64,
                shared: kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE,
                write: protection & libc::PROT_WRITE != 0,
                fixed,
            };
            process.mmap(fd, file, &request)
        }
    };
    Some(mapped.map_or_else(failed, |addr| protect(addr, arguments)))
}

/// Changes a new readable and writable mapping to the requested protection.
fn protect(addr: usize, arguments: Arguments) -> Pointer {
    let addr = addr as Pointer;
    if arguments.protection != libc::PROT_READ | libc::PROT_WRITE {
        // SAFETY: `map` just created this mapping.
        unsafe { libc::mprotect(addr, arguments.len, arguments.protection) };
    }
    addr
}

fn failed(errno: Errno) -> Pointer {
    fail(errno);
    libc::MAP_FAILED
}

/// A mapping at a fixed address first removes the mappings there, as munmap does.
fn cover(addr: usize, len: usize, run: impl FnOnce() -> Pointer) -> Pointer {
    match state::enter() {
        Some(mut process) if process.driver.maps(addr, len) => {
            let run = || match run() {
                libc::MAP_FAILED => Err(Errno::last()),
                _ => Ok(()),
            };
            match process.take_away("mmap_fixed", addr, len, run) {
                Ok(()) => addr as Pointer,
                Err(errno) => failed(errno),
            }
        }
        _ => run(),
    }
}

pub(super) fn munmap(addr: usize, len: size_t, next: impl FnOnce() -> c_int) -> c_int {
    if !mapped_range::may_touch(addr, len) {
        return next();
    }
    match state::enter() {
        Some(mut process) if process.driver.maps(addr, len) => {
            to_libc(process.take_away("munmap", addr, len, || from_libc(next())).map(|()| 0))
        }
        _ => next(),
    }
}

pub(super) fn mremap(
    old: usize,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    wanted: usize,
    next: impl FnOnce() -> Pointer,
) -> Pointer {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let concerns_us =
        mapped_range::may_touch(old, old_len.max(1)) || (fixed && mapped_range::may_touch(wanted, new_len));
    if !concerns_us {
        return next();
    }
    let Some(mut process) = state::enter() else {
        return next();
    };
    if process.driver.maps(old, old_len.max(1)) {
        // The kernel's rules for device memory, which neither grows nor leaves its old place
        // mapped.
        if flags & libc::MREMAP_DONTUNMAP != 0 {
            return failed(Errno::EINVAL);
        }
        if new_len > old_len {
            return failed(Errno::EFAULT);
        }
    }
    let new = next();
    if new == libc::MAP_FAILED {
        return failed(Errno::last());
    }
    if fixed {
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
