//! Errors of the runtime. They are those of the driver and a few more, the last of each thread, and
//! their names.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::ptr;

use crate::args::Out;
use crate::driver::entry_points::exported::cuGetErrorString;
use crate::error::Error;

/// cudaError_t values that no function of the driver API returns; all others are CUresults.
pub(crate) const INVALID_SYMBOL: Error = Error(13);
pub(crate) const INVALID_COPY_DIRECTION: Error = Error(21);
pub(crate) const MISSING_CONFIGURATION: Error = Error(52);
pub(crate) const INVALID_DEVICE_FUNCTION: Error = Error(98);

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// Makes an error the last one of this thread. Work that is not finished is no error.
pub(crate) fn remember(error: i32) -> i32 {
    if Error(error) != Error::NOT_READY {
        LAST.set(error);
    }
    error
}

pub(crate) extern "C" fn cudaGetLastError() -> i32 {
    LAST.replace(0)
}

pub(crate) extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST.get()
}

const NAMES: &[(i32, &CStr)] = &[
    (0, c"cudaSuccess"),
    (1, c"cudaErrorInvalidValue"),
    (2, c"cudaErrorMemoryAllocation"),
    (3, c"cudaErrorInitializationError"),
    (4, c"cudaErrorCudartUnloading"),
    (9, c"cudaErrorInvalidConfiguration"),
    (13, c"cudaErrorInvalidSymbol"),
    (21, c"cudaErrorInvalidMemcpyDirection"),
    (46, c"cudaErrorDevicesUnavailable"),
    (52, c"cudaErrorMissingConfiguration"),
    (98, c"cudaErrorInvalidDeviceFunction"),
    (100, c"cudaErrorNoDevice"),
    (101, c"cudaErrorInvalidDevice"),
    (200, c"cudaErrorInvalidKernelImage"),
    (201, c"cudaErrorDeviceUninitialized"),
    (205, c"cudaErrorMapBufferObjectFailed"),
    (209, c"cudaErrorNoKernelImageForDevice"),
    (217, c"cudaErrorPeerAccessUnsupported"),
    (218, c"cudaErrorInvalidPtx"),
    (304, c"cudaErrorOperatingSystem"),
    (400, c"cudaErrorInvalidResourceHandle"),
    (401, c"cudaErrorIllegalState"),
    (500, c"cudaErrorSymbolNotFound"),
    (600, c"cudaErrorNotReady"),
    (700, c"cudaErrorIllegalAddress"),
    (701, c"cudaErrorLaunchOutOfResources"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled"),
    (705, c"cudaErrorPeerAccessNotEnabled"),
    (709, c"cudaErrorContextIsDestroyed"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered"),
    (713, c"cudaErrorHostMemoryNotRegistered"),
    (716, c"cudaErrorMisalignedAddress"),
    (719, c"cudaErrorLaunchFailure"),
    (720, c"cudaErrorCooperativeLaunchTooLarge"),
    (800, c"cudaErrorNotPermitted"),
    (801, c"cudaErrorNotSupported"),
    (900, c"cudaErrorStreamCaptureUnsupported"),
    (901, c"cudaErrorStreamCaptureInvalidated"),
    (906, c"cudaErrorStreamCaptureImplicit"),
    (908, c"cudaErrorStreamCaptureWrongThread"),
    (999, c"cudaErrorUnknown"),
];

pub(crate) extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    let found = NAMES.iter().find(|(number, _)| *number == error);
    found.map_or(c"unrecognized error code", |(_, name)| name).as_ptr()
}

pub(crate) extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    let mut text = ptr::null();
    match Error(error) {
        MISSING_CONFIGURATION => c"__global__ function call is not configured".as_ptr(),
        INVALID_DEVICE_FUNCTION => c"invalid device function".as_ptr(),
        INVALID_SYMBOL => c"invalid device symbol".as_ptr(),
        INVALID_COPY_DIRECTION => c"invalid copy direction for memcpy".as_ptr(),
        _ if cuGetErrorString(error, Out::to(&mut text)) == 0 => text,
        _ => c"unrecognized error code".as_ptr(),
    }
}
