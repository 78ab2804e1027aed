//! The functions that programs get: each forwards to the real library, and records the call.
//!
//! Where the library lacks a function, lookups fail; a call that comes nevertheless returns ENOSYS.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;

use gdrcopy_trace_tables::{Function, Tables};

use crate::process::{self, tables};
use crate::real::{self, Gdr, Handle};
use crate::recording::{self, Call, Copy};

/// Forwards a call, and records it: its bytes if it succeeds, and what `note` does of it.
fn recorded(
    function: Function,
    caller: usize,
    bytes: usize,
    forward: impl FnOnce() -> c_int,
    note: impl FnOnce(&'static Tables) -> Option<usize>,
) -> c_int {
    let Some(tables) = tables() else {
        return forward();
    };
    let Some(call) = Call::begin(tables, function, caller) else {
        return forward();
    };
    let result = forward();
    let pin = if result == 0 { process::keep_errno(|| note(tables)) } else { None };
    call.end(result, bytes, pin);
    result
}

/// Calls a function of the real library.
macro_rules! forward {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: contract of gdrapi.h, which the program keeps: these are its arguments.
        || real::$name().map_or(libc::ENOSYS, |function| unsafe { function($($argument),*) })
    };
}

pub(crate) extern "C" fn open() -> Gdr {
    let call = tables().and_then(|tables| Call::begin(tables, Function::Open, 0));
    // SAFETY: no arguments.
    let Some(gdr) = real::open().map(|open| unsafe { open() }) else {
        // SAFETY: the thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return null_mut();
    };
    if let Some(call) = call {
        // SAFETY: as above.
        let errno = unsafe { *libc::__errno_location() };
        call.opened(if gdr.is_null() { errno } else { 0 });
    }
    gdr
}

pub(crate) extern "C" fn close(g: Gdr) -> c_int {
    let was_open = |tables| {
        recording::closed(tables, g.addr() as u64);
        None
    };
    recorded(Function::Close, 0, 0, forward!(close(g)), was_open)
}

pub(crate) extern "C" fn pin_buffer(
    g: Gdr,
    address: c_ulong,
    size: usize,
    token: u64,
    space: u32,
    handle: *mut Handle,
    caller: usize,
) -> c_int {
    let forward = forward!(pin_buffer(g, address, size, token, space, handle));
    let note = |tables| {
        // SAFETY: the real function has written the handle.
        let handle = unsafe { *handle };
        recording::pinned(tables, g.addr() as u64, handle, address, size as u64, caller)
    };
    recorded(Function::PinBuffer, caller, size, forward, note)
}

pub(crate) extern "C" fn pin_buffer_v2(
    g: Gdr,
    address: c_ulong,
    size: usize,
    flags: u32,
    handle: *mut Handle,
    caller: usize,
) -> c_int {
    let forward = forward!(pin_buffer_v2(g, address, size, flags, handle));
    let note = |tables| {
        // SAFETY: the real function has written the handle.
        let handle = unsafe { *handle };
        recording::pinned(tables, g.addr() as u64, handle, address, size as u64, caller)
    };
    recorded(Function::PinBufferV2, caller, size, forward, note)
}

pub(crate) extern "C" fn unpin_buffer(g: Gdr, handle: Handle) -> c_int {
    let note = |tables| recording::unpinned(tables, handle);
    recorded(Function::UnpinBuffer, 0, 0, forward!(unpin_buffer(g, handle)), note)
}

pub(crate) extern "C" fn get_callback_flag(g: Gdr, handle: Handle, flag: *mut c_int) -> c_int {
    let forward = forward!(get_callback_flag(g, handle, flag));
    recorded(Function::GetCallbackFlag, 0, 0, forward, |_| None)
}

/// Where both structs of gdr_get_info have a word with the bit-fields, and the longer one the type.
const BITS: usize = 36;
const MAPPING_TYPE: usize = 40;

pub(crate) extern "C" fn get_info(
    g: Gdr,
    handle: Handle,
    info: *mut c_void,
    _: usize,
    caller: usize,
) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: the real function has written the struct.
        let bits = unsafe { *info.byte_add(BITS).cast::<u32>() };
        // Bit 1: write-combining, which is type 1.
        recording::described(tables, handle, (bits >> 1) & 1)
    };
    recorded(Function::GetInfo, caller, 0, forward!(get_info(g, handle, info)), note)
}

pub(crate) extern "C" fn get_info_v2(
    g: Gdr,
    handle: Handle,
    info: *mut c_void,
    _: usize,
    caller: usize,
) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: the real function has written the struct.
        let mapping_type = unsafe { *info.byte_add(MAPPING_TYPE).cast::<u32>() };
        recording::described(tables, handle, mapping_type)
    };
    recorded(Function::GetInfoV2, caller, 0, forward!(get_info_v2(g, handle, info)), note)
}

pub(crate) extern "C" fn map(g: Gdr, handle: Handle, va: *mut *mut c_void, size: usize) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: the real function has written the address.
        recording::mapped(tables, handle, unsafe { *va }.addr(), size, 0)
    };
    recorded(Function::Map, 0, size, forward!(map(g, handle, va, size)), note)
}

pub(crate) extern "C" fn map_v2(
    g: Gdr,
    handle: Handle,
    va: *mut *mut c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: as above. The flags that ask for a type have its number.
        recording::mapped(tables, handle, unsafe { *va }.addr(), size, flags as u32)
    };
    recorded(Function::MapV2, 0, size, forward!(map_v2(g, handle, va, size, flags)), note)
}

pub(crate) extern "C" fn unmap(g: Gdr, handle: Handle, va: *mut c_void, size: usize) -> c_int {
    let note = |tables: &'static Tables| recording::unmapped(tables, handle);
    recorded(Function::Unmap, 0, size, forward!(unmap(g, handle, va, size)), note)
}

pub(crate) extern "C" fn copy_to_mapping(
    handle: Handle,
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    caller: usize,
) -> c_int {
    let forward = forward!(copy_to_mapping(handle, dst, src, size));
    copied(Function::CopyToMapping, handle, dst.addr(), size, caller, forward)
}

pub(crate) extern "C" fn copy_from_mapping(
    handle: Handle,
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    caller: usize,
) -> c_int {
    let forward = forward!(copy_from_mapping(handle, dst, src, size));
    copied(Function::CopyFromMapping, handle, src.addr(), size, caller, forward)
}

/// Forwards a copy, and records it.
#[inline(always)]
fn copied(
    function: Function,
    handle: Handle,
    address: usize,
    size: usize,
    caller: usize,
    forward: impl FnOnce() -> c_int,
) -> c_int {
    let Some(tables) = tables() else {
        return forward();
    };
    let copy = Copy::begin(tables, function, handle, address as u64, size, caller);
    let result = forward();
    copy.end(result);
    result
}

pub(crate) extern "C" fn runtime_get_version(major: *mut c_int, minor: *mut c_int) {
    let forward = || {
        if let Some(version) = real::runtime_get_version() {
            // SAFETY: contract of gdrapi.h.
            unsafe { version(major, minor) };
        }
        0
    };
    recorded(Function::RuntimeGetVersion, 0, 0, forward, |_| None);
}

pub(crate) extern "C" fn driver_get_version(g: Gdr, major: *mut c_int, minor: *mut c_int) -> c_int {
    let forward = forward!(driver_get_version(g, major, minor));
    recorded(Function::DriverGetVersion, 0, 0, forward, |_| None)
}

pub(crate) extern "C" fn get_attribute(g: Gdr, attribute: c_uint, value: *mut c_int) -> c_int {
    let forward = forward!(get_attribute(g, attribute, value));
    recorded(Function::GetAttribute, 0, 0, forward, |_| None)
}

pub(crate) extern "C" fn get_mapping_type_string(
    mapping_type: c_uint,
    name: *mut *const c_char,
) -> c_int {
    let forward = forward!(get_mapping_type_string(mapping_type, name));
    recorded(Function::GetMappingTypeString, 0, 0, forward, |_| None)
}
