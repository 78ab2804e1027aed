//! The functions of the library, in the order of `include/gdrx.h`, which documents them.
//!
//! # Safety
//! The header's contract holds for all functions. Pointer arguments are NULL or valid for the function's reads and
//! writes. A map that was attached describes a live mapping.
#![expect(clippy::missing_safety_doc, reason = "documented once, above")]

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;

use gdrcopy_core::backend::dmabuf;
use gdrcopy_core::copy;
use gdrcopy_core::types::{PinFlags, raw};

use crate::error::{Error, Result};
use crate::map::{Copies, gdrx_copy, gdrx_map, is_forked_child, prepare};

/// The major version in the upper 16 bits, and the minor version in the lower.
const VERSION: u32 = 1 << 16;

/// Fills `map` in, so that it describes a mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_attach_mapping(
    map: *mut gdrx_map,
    mapping_type: u32,
    mapped_size: u64,
    address: *mut c_void,
    size: usize,
) -> c_int {
    call("gdrx_attach_mapping", || {
        let attached = gdrx_map::attach(mapping_type, mapped_size, address, size)?;
        if map.is_null() {
            return Err(Error::Null("map"));
        }
        // SAFETY: `map` is not NULL, so it is valid for writes: contract of the header.
        unsafe { map.write(attached) };
        Ok(())
    })
}

/// Makes writes with one fence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_write_many(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> c_int {
    // SAFETY: contract of the header.
    unsafe {
        match Copies::alike(map, copies, n) {
            Some(alike) if alike.write() => 0,
            _ => write_different(map, copies, n),
        }
    }
}

/// Does the work of [`gdrx_write_many`] if copies differ in size. If an argument is invalid, logs the error and returns
/// its errno.
#[inline(never)]
unsafe fn write_different(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> c_int {
    call("gdrx_write_many", || {
        // SAFETY: contract of the header.
        unsafe { Copies::new(map, copies, n)?.write() };
        Ok(())
    })
}

/// Makes several reads, whose loads can be under way at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_read_many(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> c_int {
    // SAFETY: contract of the header.
    unsafe {
        match Copies::alike(map, copies, n) {
            Some(alike) if alike.read() => 0,
            _ => read_different(map, copies, n),
        }
    }
}

/// Does the work of [`gdrx_read_many`] if copies differ in size. If an argument is invalid, logs the error and returns
/// its errno.
#[inline(never)]
unsafe fn read_different(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> c_int {
    call("gdrx_read_many", || {
        // SAFETY: contract of the header.
        unsafe { Copies::new(map, copies, n)?.read() };
        Ok(())
    })
}

/// Waits until the thread's earlier writes have arrived.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_flush(map: *const gdrx_map) -> c_int {
    call("gdrx_flush", || {
        // SAFETY: contract of the header.
        let map = unsafe { gdrx_map::of(map) }?;
        map.mapping_type()?;
        // SAFETY: a map has at least one byte, which is mapped: contract of the header.
        unsafe { copy::flush(map.start()) };
        Ok(())
    })
}

/// Makes one of the writes between `gdrx_begin` and `gdrx_fence`, two inline functions of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_write_unfenced(
    map: *const gdrx_map,
    offset: usize,
    host: *const c_void,
    size: usize,
) -> c_int {
    call("gdrx_write_unfenced", || {
        // SAFETY: contract of the header.
        let map = unsafe { gdrx_map::of(map) }?;
        let mapping_type = map.mapping_type()?;
        let dst = map.place(0, &gdrx_copy { offset, host: host.cast_mut(), size })?;
        // SAFETY: `place` has checked that the bytes are inside the map, and `host` is readable: contract of the
        // header.
        unsafe { copy::write_unfenced(mapping_type, dst, host.cast(), size) };
        Ok(())
    })
}

/// Exports GPU memory as a dma-buf, for other devices and processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_dmabuf(
    device_address: u64,
    size: usize,
    flags: u32,
    fd: *mut c_int,
    offset: *mut u64,
) -> c_int {
    call("gdrx_dmabuf", || {
        prepare()?;
        if fd.is_null() {
            return Err(Error::Null("fd"));
        }
        if offset.is_null() {
            return Err(Error::Null("offset"));
        }
        let bits = flags;
        let flags = raw::pin_flags(bits);
        if flags != PinFlags::DEFAULT && flags != PinFlags::FORCE_PCIE {
            return Err(Error::PinFlags(bits));
        }
        let exported = match dmabuf::export(device_address, size, flags) {
            // In a forked child, CUDA's error does not say that the fork is the reason.
            Err(_) if is_forked_child() => return Err(gdrcopy_core::Error::ForkedChild.into()),
            result => result?,
        };
        // SAFETY: `offset` and `fd` are not NULL, so they are valid for writes: contract of the header.
        unsafe {
            offset.write(exported.offset);
            fd.write(exported.fd.into_raw_fd());
        }
        Ok(())
    })
}

/// Maps a dma-buf that another process has exported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_map_dmabuf(
    map: *mut gdrx_map,
    fd: c_int,
    offset: u64,
    size: usize,
    mapping_type: u32,
) -> c_int {
    call("gdrx_map_dmabuf", || {
        if map.is_null() {
            return Err(Error::Null("map"));
        }
        let mapped = gdrx_map::map_dmabuf(fd, offset, size, mapping_type)?;
        // SAFETY: `map` is not NULL, so it is valid for writes: contract of the header.
        unsafe { map.write(mapped) };
        Ok(())
    })
}

/// Unmaps a dma-buf that [`gdrx_map_dmabuf`] has mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_unmap_dmabuf(map: *mut gdrx_map) -> c_int {
    call("gdrx_unmap_dmabuf", || {
        // SAFETY: contract of the header.
        let map = unsafe { map.as_mut() }.ok_or(Error::Null("map"))?;
        // SAFETY: contract of the header.
        unsafe { map.unmap_dmabuf() }
    })
}

/// Returns the version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gdrx_version() -> u32 {
    VERSION
}

/// Runs the body of a C function, and returns 0. If the body fails, logs the error and returns its errno.
#[inline(always)]
fn call(function: &str, body: impl FnOnce() -> Result<()>) -> c_int {
    match body() {
        Ok(()) => 0,
        Err(error) => error.report(function),
    }
}
