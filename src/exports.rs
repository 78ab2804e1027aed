//! The functions of the C API, in the order of `include/gdrapi.h`, which documents them.
//!
//! # Safety
//! The header's contract holds for all functions. Pointer arguments are NULL or valid for the function's reads
//! and writes; handles may have any value.
#![expect(clippy::missing_safety_doc, reason = "documented once, above")]

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr;

use gdrcopy_core::copy;
use gdrcopy_core::types::{MapFlag, MappingType, P2pTokens, PinFlags, Version, raw};
use nix::errno::Errno;

use crate::types::{gdr_attr_t, gdr_info_v1_t, gdr_info_v2_t, gdr_mapping_type_t, gdr_mh_t, gdr_t};

use crate::error::{Error, Result};
use crate::guard::{caught, guard};
use crate::{calls, handles};

/// Runs the body of the C function `name`. Writes a successful result to `place`, the function's argument `argument`.
///
/// # Safety
/// `place` is NULL or valid for writes.
unsafe fn output<T>(name: &str, argument: &'static str, place: *mut T, body: impl FnOnce() -> Result<T>) -> c_int {
    guard(name, || {
        if place.is_null() {
            return Err(Error::Null(argument));
        }
        let value = body()?;
        // SAFETY: not NULL, so valid for writes: contract of this function.
        unsafe { place.write(value) };
        Ok(())
    })
}

/// Opens gdrdrv or, if gdrdrv does not work, CUDA's dma-bufs. Returns NULL and sets errno if neither works.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_open() -> gdr_t {
    match caught("gdr_open", calls::open) {
        Ok(handle) => ptr::with_exposed_provenance_mut(handle),
        Err(error) => {
            Errno::set_raw(error.errno());
            ptr::null_mut()
        }
    }
}

/// Releases all pins and mappings, and closes the driver.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_close(g: gdr_t) -> c_int {
    guard("gdr_close", || calls::close(g.addr()))
}

/// Pins a buffer. Only drivers before 2.5 look at `p2p_token` and `va_space`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_pin_buffer(
    g: gdr_t,
    addr: c_ulong,
    size: usize,
    p2p_token: u64,
    va_space: u32,
    handle: *mut gdr_mh_t,
) -> c_int {
    let tokens = P2pTokens { p2p_token, va_space };
    // SAFETY: `handle` is NULL or valid for writes: contract of the header.
    unsafe { pin("gdr_pin_buffer", g, addr, size, PinFlags::DEFAULT, tokens, handle) }
}

/// Pins a buffer with flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_pin_buffer_v2(
    g: gdr_t,
    addr: c_ulong,
    size: usize,
    flags: u32,
    handle: *mut gdr_mh_t,
) -> c_int {
    // SAFETY: `handle` is NULL or valid for writes: contract of the header.
    unsafe { pin("gdr_pin_buffer_v2", g, addr, size, raw::pin_flags(flags), P2pTokens::default(), handle) }
}

/// # Safety
/// `handle` is NULL or valid for writes.
unsafe fn pin(
    name: &str,
    g: gdr_t,
    addr: c_ulong,
    size: usize,
    flags: PinFlags,
    tokens: P2pTokens,
    handle: *mut gdr_mh_t,
) -> c_int {
    let body = || {
        // SAFETY: the C caller is responsible for all writes to the memory: contract of the header.
        let pin = unsafe { calls::pin(g.addr(), addr, size, flags, tokens) }?;
        Ok(gdr_mh_t { h: pin as c_ulong })
    };
    // SAFETY: contract of this function.
    unsafe { output(name, "handle", handle, body) }
}

/// Unmaps a buffer if it is mapped, and unpins it.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_unpin_buffer(g: gdr_t, handle: gdr_mh_t) -> c_int {
    guard("gdr_unpin_buffer", || calls::unpin(g.addr(), handle.h as usize))
}

/// Writes 1 to `flag` if the pinned memory has been freed, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_callback_flag(g: gdr_t, handle: gdr_mh_t, flag: *mut c_int) -> c_int {
    let body = || Ok(calls::callback_flag(g.addr(), handle.h as usize)?.into());
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_get_callback_flag", "flag", flag, body) }
}

/// Describes a pin by the struct of 40 bytes that programs built before version 2.4 pass.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_info(g: gdr_t, handle: gdr_mh_t, info: *mut gdr_info_v1_t) -> c_int {
    let body = || Ok(calls::info(g.addr(), handle.h as usize)?.into());
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_get_info", "info", info, body) }
}

/// Describes a pin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_info_v2(g: gdr_t, handle: gdr_mh_t, info: *mut gdr_info_v2_t) -> c_int {
    let body = || Ok(calls::info(g.addr(), handle.h as usize)?.into());
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_get_info_v2", "info", info, body) }
}

/// Maps a pin with the platform's default type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_map(g: gdr_t, handle: gdr_mh_t, va: *mut *mut c_void, size: usize) -> c_int {
    // SAFETY: `va` is NULL or valid for writes: contract of the header.
    unsafe { map("gdr_map", g, handle, va, size, MapFlag::Default as c_int) }
}

/// Maps a pin with the type that the flag requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_map_v2(
    g: gdr_t,
    handle: gdr_mh_t,
    ptr_va: *mut *mut c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: `ptr_va` is NULL or valid for writes: contract of the header.
    unsafe { map("gdr_map_v2", g, handle, ptr_va, size, flags) }
}

/// # Safety
/// `va` is NULL or valid for writes.
unsafe fn map(name: &str, g: gdr_t, handle: gdr_mh_t, va: *mut *mut c_void, size: usize, flags: c_int) -> c_int {
    let body = || {
        let Some(flag) = raw::map_flag(flags) else {
            return Err(Error::UnknownMapFlag(flags));
        };
        // SAFETY: the C caller is responsible for all writes to the memory: contract of the header.
        let mapped = unsafe { calls::map(g.addr(), handle.h as usize, size, flag) }?;
        Ok(mapped.cast())
    };
    // SAFETY: contract of this function.
    unsafe { output(name, "va", va, body) }
}

/// Unmaps a pin's mapping. `va` and `size` are only compared with the mapping, and a difference is logged.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_unmap(g: gdr_t, handle: gdr_mh_t, va: *mut c_void, size: usize) -> c_int {
    guard("gdr_unmap", || calls::unmap(g.addr(), handle.h as usize, va.addr(), size))
}

/// Copies to a mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_to_mapping(
    handle: gdr_mh_t,
    map_d_ptr: *mut c_void,
    h_ptr: *const c_void,
    size: usize,
) -> c_int {
    match handles::mapping_type(handle.h as usize) {
        Some(mapping_type) if !map_d_ptr.is_null() && !h_ptr.is_null() => {
            // SAFETY: both ranges are valid, and the range at `map_d_ptr` lies in the mapping of `handle`, which has
            // this type: contract of the header.
            unsafe { copy::to_mapping(mapping_type, map_d_ptr.cast(), h_ptr.cast(), size) };
            0
        }
        _ => reject_copy_to(handle, map_d_ptr, h_ptr, size),
    }
}

/// Copies from a mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_from_mapping(
    handle: gdr_mh_t,
    h_ptr: *mut c_void,
    map_d_ptr: *const c_void,
    size: usize,
) -> c_int {
    match handles::mapping_type(handle.h as usize) {
        Some(mapping_type) if !map_d_ptr.is_null() && !h_ptr.is_null() => {
            // SAFETY: both ranges are valid, and the range at `map_d_ptr` lies in the mapping of `handle`, which has
            // this type: contract of the header.
            unsafe { copy::from_mapping(mapping_type, h_ptr.cast(), map_d_ptr.cast(), size) };
            0
        }
        _ => reject_copy_from(handle, h_ptr, map_d_ptr, size),
    }
}

// The copy functions end in a tail call to the next two functions if the handle is not mapped or a pointer is NULL.
// These have the same signatures as the copy functions, which therefore jump to them and need no stack frame.

#[cold]
#[inline(never)]
extern "C" fn reject_copy_to(handle: gdr_mh_t, map_d_ptr: *mut c_void, _h_ptr: *const c_void, size: usize) -> c_int {
    reject_copy("gdr_copy_to_mapping", handle, map_d_ptr, size)
}

#[cold]
#[inline(never)]
extern "C" fn reject_copy_from(handle: gdr_mh_t, _h_ptr: *mut c_void, map_d_ptr: *const c_void, size: usize) -> c_int {
    reject_copy("gdr_copy_from_mapping", handle, map_d_ptr, size)
}

/// Returns the errno of a copy with an unmapped handle or a NULL pointer; 0 if the handle is mapped and `size` is 0.
fn reject_copy(name: &str, handle: gdr_mh_t, map_d_ptr: *const c_void, size: usize) -> c_int {
    let handle = handle.h as usize;
    guard(name, || match handles::mapping_type(handle) {
        None => Err(handles::why_not_mapped(handle)),
        Some(_) if size == 0 => Ok(()),
        Some(_) => Err(Error::Null(if map_d_ptr.is_null() { "map_d_ptr" } else { "h_ptr" })),
    })
}

/// Writes the API version of this library to the pointers that are not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_runtime_get_version(major: *mut c_int, minor: *mut c_int) {
    for (place, number) in [(major, Version::API.major), (minor, Version::API.minor)] {
        if !place.is_null() {
            // SAFETY: not NULL, so valid for writes: contract of the header.
            unsafe { place.write(number as c_int) };
        }
    }
}

/// Writes the driver's version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_driver_get_version(g: gdr_t, major: *mut c_int, minor: *mut c_int) -> c_int {
    let body = || {
        if minor.is_null() {
            return Err(Error::Null("minor"));
        }
        let version = calls::gdr(g.addr())?.driver_version()?;
        // SAFETY: not NULL, so valid for writes: contract of the header.
        unsafe { minor.write(version.minor as c_int) };
        Ok(version.major as c_int)
    };
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_driver_get_version", "major", major, body) }
}

/// Writes the value of an attribute of the open driver to `v`, or 0 on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_attribute(g: gdr_t, attr: gdr_attr_t, v: *mut c_int) -> c_int {
    let body = || {
        // SAFETY: `output` calls this only if `v` is not NULL, so `v` is valid for writes: contract of the header.
        unsafe { v.write(0) };
        let Some(attribute) = raw::attribute(attr) else {
            return Err(Error::UnknownAttribute(attr));
        };
        Ok(calls::gdr(g.addr())?.attribute(attribute)?)
    };
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_get_attribute", "v", v, body) }
}

/// Writes the address of a constant string, the name of a mapping type, to `pstr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_mapping_type_string(
    mapping_type: gdr_mapping_type_t,
    pstr: *mut *const c_char,
) -> c_int {
    let body = || {
        let name = match raw::mapping_type(mapping_type) {
            None if mapping_type == 0 => c"None",
            Some(MappingType::WriteCombining) => c"Write Combining",
            Some(MappingType::Caching) => c"Caching",
            Some(MappingType::Device) => c"Device",
            _ => return Err(Error::UnknownMappingType(mapping_type)),
        };
        Ok(name.as_ptr())
    };
    // SAFETY: NULL or valid for writes: contract of the header.
    unsafe { output("gdr_get_mapping_type_string", "pstr", pstr, body) }
}
