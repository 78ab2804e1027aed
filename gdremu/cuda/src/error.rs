//! CUresult values, their names and texts.
#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gdremu_core::c_text;
use gdremu_core::gpu::address_space;

/// A CUresult other than CUDA_SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

pub(crate) type Result<T = ()> = std::result::Result<T, Error>;

pub(crate) fn ensure<E>(condition: bool, error: E) -> std::result::Result<(), E> {
    if condition { Ok(()) } else { Err(error) }
}

pub(crate) fn valid<T>(value: Option<T>) -> Result<T> {
    value.ok_or(Error::INVALID_VALUE)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Declares the constants and the table of texts from two lists. The first list has the results of the driver, which
/// may also have a name in the runtime. The second list has the results that only the runtime has.
macro_rules! results {
    (
        $($value:literal $name:ident $($runtime:ident)? $text:literal),* ;
        $($own:literal $constant:ident $own_name:ident $own_text:literal),* ;
    ) => {
        #[allow(dead_code, reason = "the table has every result, the stand-in returns some")]
        impl Error {
            $(pub(crate) const $name: Error = Error($value);)*
            $(pub(crate) const $constant: Error = Error($own);)*
        }

        pub(crate) const TEXTS: &[Text] = &[
            Text { value: 0, name: c"CUDA_SUCCESS", runtime: c"cudaSuccess", text: c"no error" },
            $(Text {
                value: $value,
                name: c_text(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                runtime: c_text(concat!($("cudaError", stringify!($runtime),)? "\0")),
                text: $text,
            },)*
            $(Text {
                value: $own,
                name: c"",
                runtime: c_text(concat!("cudaError", stringify!($own_name), "\0")),
                text: $own_text,
            },)*
        ];
    };
}

/// A result's names in the driver and runtime API, and its description. A name is empty if that API lacks the result.
pub(crate) struct Text {
    pub(crate) value: i32,
    pub(crate) name: &'static CStr,
    pub(crate) runtime: &'static CStr,
    pub(crate) text: &'static CStr,
}

pub(crate) fn text(error: i32) -> Option<&'static Text> {
    TEXTS.iter().find(|text| text.value == error)
}

pub(crate) fn text_of_driver(error: i32) -> Option<&'static Text> {
    let text = text(error)?;
    if text.name.is_empty() { None } else { Some(text) }
}

results! {
    1 INVALID_VALUE InvalidValue c"invalid argument",
    2 OUT_OF_MEMORY MemoryAllocation c"out of memory",
    3 NOT_INITIALIZED InitializationError c"initialization error",
    46 DEVICE_UNAVAILABLE DevicesUnavailable c"device is busy or unavailable",
    100 NO_DEVICE NoDevice c"no CUDA-capable device is detected",
    101 INVALID_DEVICE InvalidDevice c"invalid device ordinal",
    200 INVALID_IMAGE InvalidKernelImage c"device kernel image is invalid",
    201 INVALID_CONTEXT DeviceUninitialized c"invalid device context",
    205 MAP_FAILED MapBufferObjectFailed c"mapping of buffer object failed",
    209 NO_BINARY_FOR_GPU NoKernelImageForDevice c"no kernel image is available for the device",
    218 INVALID_PTX InvalidPtx c"PTX compilation failed",
    224 UNSUPPORTED_EXEC_AFFINITY c"execution affinity is not supported",
    304 OPERATING_SYSTEM OperatingSystem c"operating system call failed",
    400 INVALID_HANDLE InvalidResourceHandle c"invalid resource handle",
    401 ILLEGAL_STATE IllegalState c"resource is not in the state for this call",
    500 NOT_FOUND SymbolNotFound c"named symbol not found",
    600 NOT_READY NotReady c"device not ready",
    700 ILLEGAL_ADDRESS IllegalAddress c"illegal memory access",
    709 CONTEXT_IS_DESTROYED ContextIsDestroyed c"context is destroyed",
    712 HOST_MEMORY_ALREADY_REGISTERED HostMemoryAlreadyRegistered c"host memory is already registered",
    713 HOST_MEMORY_NOT_REGISTERED HostMemoryNotRegistered c"host memory is not registered",
    716 MISALIGNED_ADDRESS MisalignedAddress c"misaligned memory access",
    719 LAUNCH_FAILED LaunchFailure c"launch failure",
    720 COOPERATIVE_LAUNCH_TOO_LARGE CooperativeLaunchTooLarge c"too many blocks in a cooperative launch",
    800 NOT_PERMITTED NotPermitted c"operation not permitted",
    801 NOT_SUPPORTED NotSupported c"operation not supported",
    802 SYSTEM_NOT_READY c"system not ready",
    803 SYSTEM_DRIVER_MISMATCH c"driver components do not match",
    900 STREAM_CAPTURE_UNSUPPORTED StreamCaptureUnsupported c"operation not permitted while a stream is capturing",
    901 STREAM_CAPTURE_INVALIDATED StreamCaptureInvalidated c"the capture is invalid after an earlier error",
    906 STREAM_CAPTURE_IMPLICIT StreamCaptureImplicit c"operation would make a capturing stream depend on a default stream",
    908 STREAM_CAPTURE_WRONG_THREAD StreamCaptureWrongThread c"the capture was begun by another thread",
    999 UNKNOWN Unknown c"unknown error";
    9 INVALID_CONFIGURATION InvalidConfiguration c"invalid configuration argument",
    13 INVALID_SYMBOL InvalidSymbol c"invalid device symbol",
    21 INVALID_COPY_DIRECTION InvalidMemcpyDirection c"invalid copy direction for memcpy",
    52 MISSING_CONFIGURATION MissingConfiguration c"__global__ function call is not configured",
    98 INVALID_DEVICE_FUNCTION InvalidDeviceFunction c"invalid device function";
}

impl From<address_space::Error> for Error {
    fn from(error: address_space::Error) -> Self {
        match error {
            address_space::Error::Invalid => Error::INVALID_VALUE,
            address_space::Error::NoMemory | address_space::Error::NoAddresses(_) => Error::OUT_OF_MEMORY,
        }
    }
}
