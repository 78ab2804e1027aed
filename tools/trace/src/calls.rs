//! The functions that programs get. Each forwards to the real library, and records the call.
//!
//! Where the library lacks a function, lookups fail; a call that comes nevertheless returns ENOSYS. All are unsafe by the
//! contract of gdrapi.h, which the program keeps whose arguments they pass on.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use gdrcopy_trace_tables::{Function, Pin, Tables};

use crate::process::{self, tables};
use crate::real::{self, Gdr, Handle};
use crate::recording::{self, Call, Copy};

/// Forwards a call, and records it. If it succeeds, its bytes count and `note` runs.
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
    let (result, call) = Call::measure(tables, function, caller, forward);
    if let Some(call) = call {
        let pin = if result == 0 { process::keep_errno(|| note(tables)) } else { None };
        call.record(result, bytes, pin);
    }
    result
}

/// Same for a call that ends pins or mappings. `before` runs first, as by its return another thread may have made one with
/// the handle; `after` learns the result, and returns the pin. Both run for calls that the library makes itself.
fn ends<T>(
    function: Function,
    bytes: usize,
    before: impl FnOnce(&'static Tables) -> T,
    after: impl FnOnce(&'static Tables, T, c_int) -> Option<usize>,
    forward: impl FnOnce() -> c_int,
) -> c_int {
    let Some(tables) = tables() else {
        return forward();
    };
    let noted = before(tables);
    let (result, call) = Call::measure(tables, function, 0, forward);
    let pin = after(tables, noted, result);
    if let Some(call) = call {
        call.record(result, bytes, pin);
    }
    result
}

/// Same for a call that ends pins, unless it fails with one of these errors.
fn ends_pins(
    function: Function,
    is_meant: impl Fn(&Pin) -> bool,
    forward: impl FnOnce() -> c_int,
    unless: impl Fn(c_int) -> bool,
) -> c_int {
    let before = |tables| recording::ending(tables, &is_meant);
    ends(function, 0, before, |tables, (), result| recording::ended(tables, &is_meant, !unless(result)), forward)
}

/// Finds a function of the real library, which takes long the first time, and returns what calls it.
macro_rules! forward {
    ($name:ident($($argument:expr),*)) => {{
        let function = real::$name();
        // SAFETY: contract of gdrapi.h, kept by the program whose arguments these are.
        move || function.map_or(libc::ENOSYS, |function| unsafe { function($($argument),*) })
    }};
}

pub(crate) unsafe extern "C-unwind" fn open() -> Gdr {
    let Some(open) = real::open() else {
        // SAFETY: the thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return null_mut();
    };
    // SAFETY: no arguments.
    let open = || unsafe { open() };
    let Some(tables) = tables() else {
        return open();
    };
    let (gdr, call) = Call::measure(tables, Function::Open, 0, open);
    if let Some(call) = call {
        // SAFETY: the thread's errno.
        let errno = unsafe { *libc::__errno_location() };
        call.record(if gdr.is_null() { errno } else { 0 }, 0, None);
    }
    gdr
}

pub(crate) unsafe extern "C-unwind" fn close(g: Gdr) -> c_int {
    let is_of_it = |pin: &Pin| pin.gdr.load(Relaxed) == g.addr() as u64;
    // With other errors it is closed nevertheless.
    let unless = |result| matches!(result, libc::EINVAL | libc::EACCES);
    ends_pins(Function::Close, is_of_it, forward!(close(g)), unless)
}

pub(crate) unsafe extern "C-unwind" fn pin_buffer(
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

pub(crate) unsafe extern "C-unwind" fn pin_buffer_v2(
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

pub(crate) unsafe extern "C-unwind" fn unpin_buffer(g: Gdr, handle: Handle) -> c_int {
    let is_it = |pin: &Pin| pin.handle.load(Relaxed) == handle;
    ends_pins(Function::UnpinBuffer, is_it, forward!(unpin_buffer(g, handle)), |result| result != 0)
}

pub(crate) unsafe extern "C-unwind" fn get_callback_flag(g: Gdr, handle: Handle, flag: *mut c_int) -> c_int {
    let forward = forward!(get_callback_flag(g, handle, flag));
    recorded(Function::GetCallbackFlag, 0, 0, forward, |_| None)
}

pub(crate) unsafe extern "C-unwind" fn get_info(
    g: Gdr,
    handle: Handle,
    info: *mut c_void,
    _: usize,
    caller: usize,
) -> c_int {
    recorded(Function::GetInfo, caller, 0, forward!(get_info(g, handle, info)), |_| None)
}

pub(crate) unsafe extern "C-unwind" fn get_info_v2(
    g: Gdr,
    handle: Handle,
    info: *mut c_void,
    _: usize,
    caller: usize,
) -> c_int {
    recorded(Function::GetInfoV2, caller, 0, forward!(get_info_v2(g, handle, info)), |_| None)
}

/// The type of a mapping and the device address at which it begins, of the library's own info. They are 0 and the last
/// address if that is unknown.
fn mapping_info(g: Gdr, handle: Handle) -> (u32, u64) {
    /// Where both structs have a word with the bit-fields, and the longer one the type.
    const BITS: usize = 36 / 4;
    const TYPE: usize = 40 / 4;
    let mut info = [0u32; 32];
    let place = info.as_mut_ptr().cast();
    let result = match (real::get_info_v2(), real::get_info()) {
        // SAFETY: the pin exists; the structs have 48 and 40 bytes.
        (Some(get_info), _) | (None, Some(get_info)) => unsafe { get_info(g, handle, place) },
        (None, None) => libc::ENOSYS,
    };
    let start = u64::from(info[1]) << 32 | u64::from(info[0]);
    match (result, info[TYPE]) {
        // Bit 1 of the shorter struct is write-combining, type 1.
        (0, 0) => ((info[BITS] >> 1) & 1, start),
        (0, mapping_type) => (mapping_type, start),
        _ => (0, u64::MAX),
    }
}

pub(crate) unsafe extern "C-unwind" fn map(g: Gdr, handle: Handle, va: *mut *mut c_void, size: usize) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: the real function has written the address.
        recording::mapped(tables, handle, unsafe { *va }.addr(), size, mapping_info(g, handle))
    };
    recorded(Function::Map, 0, size, forward!(map(g, handle, va, size)), note)
}

pub(crate) unsafe extern "C-unwind" fn map_v2(
    g: Gdr,
    handle: Handle,
    va: *mut *mut c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    let note = |tables: &'static Tables| {
        // SAFETY: as above.
        recording::mapped(tables, handle, unsafe { *va }.addr(), size, mapping_info(g, handle))
    };
    recorded(Function::MapV2, 0, size, forward!(map_v2(g, handle, va, size, flags)), note)
}

pub(crate) unsafe extern "C-unwind" fn unmap(g: Gdr, handle: Handle, va: *mut c_void, size: usize) -> c_int {
    let before = |tables| recording::unmapping(tables, handle);
    let forward = forward!(unmap(g, handle, va, size));
    ends(
        Function::Unmap,
        size,
        before,
        |tables, before, result| {
            let (pin, mapped) = before?;
            if result != 0 {
                recording::stays_mapped(tables, pin, mapped);
            }
            Some(pin)
        },
        forward,
    )
}

pub(crate) unsafe extern "C-unwind" fn copy_to_mapping(
    handle: Handle,
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    caller: usize,
) -> c_int {
    let forward = forward!(copy_to_mapping(handle, dst, src, size));
    copied(Function::CopyToMapping, handle, dst.addr(), size, caller, forward)
}

pub(crate) unsafe extern "C-unwind" fn copy_from_mapping(
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

pub(crate) unsafe extern "C-unwind" fn runtime_get_version(major: *mut c_int, minor: *mut c_int) {
    let version = real::runtime_get_version();
    let forward = || {
        if let Some(version) = version {
            // SAFETY: contract of gdrapi.h.
            unsafe { version(major, minor) };
        }
        0
    };
    recorded(Function::RuntimeGetVersion, 0, 0, forward, |_| None);
}

pub(crate) unsafe extern "C-unwind" fn driver_get_version(g: Gdr, major: *mut c_int, minor: *mut c_int) -> c_int {
    let forward = forward!(driver_get_version(g, major, minor));
    recorded(Function::DriverGetVersion, 0, 0, forward, |_| None)
}

pub(crate) unsafe extern "C-unwind" fn get_attribute(g: Gdr, attribute: c_uint, value: *mut c_int) -> c_int {
    let forward = forward!(get_attribute(g, attribute, value));
    recorded(Function::GetAttribute, 0, 0, forward, |_| None)
}

pub(crate) unsafe extern "C-unwind" fn get_mapping_type_string(
    mapping_type: c_uint,
    name: *mut *const c_char,
) -> c_int {
    let forward = forward!(get_mapping_type_string(mapping_type, name));
    recorded(Function::GetMappingTypeString, 0, 0, forward, |_| None)
}
