//! CUresult values, their names and texts.

use std::ffi::CStr;

use gdremu_core::gpu::memory;

/// A CUresult other than CUDA_SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) i32);

pub(crate) type Result<T = ()> = std::result::Result<T, Error>;

/// # Errors
/// This one, unless the condition holds.
pub(crate) fn ensure<E>(condition: bool, error: E) -> std::result::Result<(), E> {
    if condition { Ok(()) } else { Err(error) }
}

/// Declares the constants and the table of texts from one list.
macro_rules! results {
    ($($value:literal $name:ident $text:literal),* $(,)?) => {
        #[allow(dead_code, reason = "the table has every result, the stand-in returns some")]
        impl Error {
            $(pub(crate) const $name: Error = Error($value);)*
        }

        pub(crate) const TEXTS: &[Text] = &[
            Text { value: 0, name: c"CUDA_SUCCESS", text: c"no error" },
            $(Text {
                value: $value,
                name: c_text(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                text: $text,
            }),*
        ];
    };
}

/// The name and the description of a CUresult.
pub(crate) struct Text {
    pub(crate) value: i32,
    pub(crate) name: &'static CStr,
    pub(crate) text: &'static CStr,
}

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("one NUL, at the end"),
    }
}

results! {
    1 INVALID_VALUE c"invalid argument",
    2 OUT_OF_MEMORY c"out of memory",
    3 NOT_INITIALIZED c"initialization error",
    4 DEINITIALIZED c"driver shutting down",
    34 STUB_LIBRARY c"CUDA driver is a stub library",
    46 DEVICE_UNAVAILABLE c"device is busy or unavailable",
    100 NO_DEVICE c"no CUDA-capable device is detected",
    101 INVALID_DEVICE c"invalid device ordinal",
    200 INVALID_IMAGE c"device kernel image is invalid",
    201 INVALID_CONTEXT c"invalid device context",
    202 CONTEXT_ALREADY_CURRENT c"context already current",
    205 MAP_FAILED c"mapping of buffer object failed",
    206 UNMAP_FAILED c"unmapping of buffer object failed",
    208 ALREADY_MAPPED c"resource already mapped",
    209 NO_BINARY_FOR_GPU c"no kernel image is available for the device",
    211 NOT_MAPPED c"resource not mapped",
    215 UNSUPPORTED_LIMIT c"limit is not supported on this device",
    217 PEER_ACCESS_UNSUPPORTED c"no peer access between the two devices",
    218 INVALID_PTX c"PTX compilation failed",
    224 UNSUPPORTED_EXEC_AFFINITY c"execution affinity is not supported",
    300 INVALID_SOURCE c"device kernel source is invalid",
    301 FILE_NOT_FOUND c"file not found",
    304 OPERATING_SYSTEM c"operating system call failed",
    400 INVALID_HANDLE c"invalid resource handle",
    401 ILLEGAL_STATE c"resource is not in the state for this call",
    500 NOT_FOUND c"named symbol not found",
    600 NOT_READY c"device not ready",
    700 ILLEGAL_ADDRESS c"illegal memory access",
    701 LAUNCH_OUT_OF_RESOURCES c"too many resources requested for launch",
    704 PEER_ACCESS_ALREADY_ENABLED c"peer access is already enabled",
    705 PEER_ACCESS_NOT_ENABLED c"peer access has not been enabled",
    708 PRIMARY_CONTEXT_ACTIVE c"primary context is active",
    709 CONTEXT_IS_DESTROYED c"context is destroyed",
    712 HOST_MEMORY_ALREADY_REGISTERED c"host memory is already registered",
    713 HOST_MEMORY_NOT_REGISTERED c"host memory is not registered",
    716 MISALIGNED_ADDRESS c"misaligned memory access",
    719 LAUNCH_FAILED c"launch failure",
    720 COOPERATIVE_LAUNCH_TOO_LARGE c"too many blocks in a cooperative launch",
    800 NOT_PERMITTED c"operation not permitted",
    801 NOT_SUPPORTED c"operation not supported",
    802 SYSTEM_NOT_READY c"system not ready",
    803 SYSTEM_DRIVER_MISMATCH c"driver components do not match",
    900 STREAM_CAPTURE_UNSUPPORTED c"operation not permitted while a stream is capturing",
    901 STREAM_CAPTURE_INVALIDATED c"the capture is invalid after an earlier error",
    906 STREAM_CAPTURE_IMPLICIT c"operation would make a capturing stream depend on a default stream",
    908 STREAM_CAPTURE_WRONG_THREAD c"the capture was begun by another thread",
    999 UNKNOWN c"unknown error",
}

impl From<memory::Error> for Error {
    fn from(error: memory::Error) -> Self {
        match error {
            memory::Error::Invalid => Error::INVALID_VALUE,
            memory::Error::NoMemory | memory::Error::NoAddresses(_) => Error::OUT_OF_MEMORY,
        }
    }
}
