//! cuGetProcAddress: the real one's result, unless the function is replaced.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use gdremu_core::gpu::nvidia::cuda::{Status, check_status};

use crate::entry::call;
use crate::replaced;

/// Replaces a real function that was found.
///
/// # Safety
/// The arguments of a call of cuGetProcAddress that has succeeded.
unsafe fn replace(name: *const c_char, function: *mut *const c_void, version: c_int) {
    // SAFETY: cuGetProcAddress has written the pointer: contract of this function.
    unsafe {
        if !(*function).is_null()
            && let Ok(name) = CStr::from_ptr(name).to_str()
            && let Some(ours) = replaced::by_name(name, version as u32)
        {
            function.write(ours);
        }
    }
}

pub(crate) unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *const c_void,
    version: c_int,
    flags: u64,
) -> Status {
    call("cuGetProcAddress", |cuda| {
        // SAFETY: the caller's arguments are passed on unchanged.
        unsafe {
            check_status((cuda.cuGetProcAddress)(name, function, version, flags))?;
            replace(name, function, version);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *const c_void,
    version: c_int,
    flags: u64,
    found: *mut c_uint,
) -> Status {
    call("cuGetProcAddress", |cuda| {
        // SAFETY: the caller's arguments are passed on unchanged.
        unsafe {
            check_status((cuda.cuGetProcAddress_v2)(name, function, version, flags, found))?;
            replace(name, function, version);
        }
        Ok(())
    })
}
