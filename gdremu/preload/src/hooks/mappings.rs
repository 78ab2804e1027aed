//! Hooks of mmap, munmap and mremap.

use std::ffi::c_int;

use gdremu_core::driver::MapRequest;
use gdremu_core::errno::Errno;
use gdremu_core::gpu::page_size;
use libc::{off_t, size_t};

use crate::descriptors::Kind;
use crate::hints::{device_fds, mapped_range};
use crate::next::Pointer;
use crate::state;
use crate::system::{fail, file_status, from_libc, to_libc};

pub(super) fn mmap(
    addr: Pointer,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    next: impl FnOnce() -> Pointer,
) -> Pointer {
    if flags & libc::MAP_ANONYMOUS == 0
        && may_be_device(fd)
        && let Some(mapped) = map_device(addr as usize, len, protection, flags, fd, offset)
    {
        return mapped;
    }
    if flags & libc::MAP_FIXED == 0 || !mapped_range::may_touch(addr as usize, len) {
        return next();
    }
    // A mapping with MAP_FIXED replaces the mappings at its address, so it is handled as a munmap of them.
    let mut mapped = libc::MAP_FAILED;
    take_away("mmap_fixed", addr as usize, len, || {
        mapped = next();
        if mapped == libc::MAP_FAILED { -1 } else { 0 }
    });
    mapped
}

/// Returns whether a descriptor may be an emulated device or a dma-buf. The files that stand for these occupy no disk
/// blocks, but almost all other files that programs map do.
fn may_be_device(fd: c_int) -> bool {
    if device_fds::may_be(fd) {
        return true;
    }
    match file_status(fd) {
        Some(status) => status.st_blocks == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG,
        None => false,
    }
}

fn map_device(addr: usize, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> Option<Pointer> {
    let mut process = state::enter()?;
    let kind = flags & libc::MAP_TYPE;
    let fixed = if flags & libc::MAP_FIXED != 0 { Some(addr) } else { None };
    // No known program maps GPU memory over mapped GPU memory or with MAP_FIXED_NOREPLACE, so both are refused.
    let is_covering = fixed.is_some() && (!addr.is_multiple_of(page_size()) || process.driver.vmas.touches(addr, len));
    let is_refused = is_covering || flags & libc::MAP_FIXED_NOREPLACE != 0;
    let descriptor = process.descriptors.find(fd)?;
    let mapped = match descriptor {
        (_, Kind::Foreign) => Err(Errno::EACCES),
        _ if is_refused => Err(Errno::EINVAL),
        _ => {
            let shared = kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE;
            let write = protection & libc::PROT_WRITE != 0;
            process.mmap(fd, descriptor, &MapRequest { len, offset: offset as u64, shared, write, fixed })
        }
    };
    let addr = match mapped {
        Ok(addr) => addr as Pointer,
        Err(errno) => return Some(failed(errno)),
    };
    if protection != libc::PROT_READ | libc::PROT_WRITE {
        // SAFETY: this readable and writable mapping was just made.
        unsafe { libc::mprotect(addr, len, protection) };
    }
    Some(addr)
}

fn failed(errno: Errno) -> Pointer {
    fail(errno);
    libc::MAP_FAILED
}

pub(super) fn munmap(addr: usize, len: size_t, next: impl FnOnce() -> c_int) -> c_int {
    if mapped_range::may_touch(addr, len) { take_away("munmap", addr, len, next) } else { next() }
}

/// Makes a call that ends all mappings in an address range. If GPU memory is mapped there, also records the call.
fn take_away(name: &'static str, addr: usize, len: size_t, next: impl FnOnce() -> c_int) -> c_int {
    match state::enter() {
        Some(mut process) if process.driver.vmas.touches(addr, len) => {
            to_libc(process.take_away(name, addr, len, || from_libc(next())))
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
    if process.driver.vmas.touches(old, old_len.max(1)) {
        // Linux also refuses to enlarge a mapping of device memory, or to keep its old addresses when it is moved.
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
