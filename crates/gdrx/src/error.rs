//! The errors that the functions of libgdrx can return.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fmt;

use gdrcopy_core::stderr;

/// The result of fallible functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why a function failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// This argument is NULL.
    Null(&'static str),
    /// No call has filled in the `gdrx_map`, which describes a mapping.
    NotAttached,
    /// This number is not the type of a mapping: it is 0, the type of an unmapped pin, or unknown.
    NotMapped { mapping_type: u32 },
    /// The size of a map is 0, or larger than the size of its mapping.
    Size { size: usize, mapped_size: u64 },
    /// No open descriptor has this number.
    NotADescriptor(c_int),
    /// Linux refuses to unmap the memory of a `gdrx_map`, because the map does not describe a mapping of a dma-buf.
    NotADmaBuf,
    /// These are not valid flags of a pin.
    PinFlags(u32),
    /// The caller has passed more copies than an array can have.
    Count(usize),
    /// This copy's host address is NULL.
    NullHost { index: usize },
    /// This copy is not inside the map, which has `room` bytes.
    Outside { index: usize, offset: usize, size: usize, room: usize },
    /// An error of gdrcopy-core.
    Core(gdrcopy_core::Error),
}

impl From<gdrcopy_core::Error> for Error {
    fn from(error: gdrcopy_core::Error) -> Error {
        Error::Core(error)
    }
}

impl Error {
    /// Logs the error with the name of the function that has failed, and returns its errno.
    #[cold]
    pub(crate) fn report(&self, function: &str) -> c_int {
        if stderr::is_installed() {
            log::error!("{function}: {self}");
        }
        match self {
            Error::Core(error) => error.errno(),
            _ => libc::EINVAL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Null(argument) => write!(f, "`{argument}` is NULL: pass a valid pointer"),
            Error::NotAttached => f.write_str("`map` was not attached: call gdrx_attach or gdrx_map_dmabuf first"),
            Error::NotMapped { mapping_type: 0 } => {
                f.write_str("the mapping type is 0: call gdr_map first, or pass the exporter's type")
            }
            Error::NotMapped { mapping_type } => {
                write!(f, "{mapping_type} is not the type of a mapping (1 to 3)")
            }
            Error::Size { size, mapped_size } => {
                write!(f, "`size` is {size}: pass 1 to {mapped_size}, the bytes that are mapped")
            }
            Error::NotADescriptor(fd) => write!(f, "`fd` is {fd}: pass an open descriptor of a dma-buf"),
            Error::NotADmaBuf => {
                f.write_str("`map` cannot be unmapped: pass the one that gdrx_map_dmabuf has filled in")
            }
            Error::PinFlags(flags) => write!(f, "`flags` is {flags:#x}: pass a set of gdr_pin_flags_t"),
            Error::Count(n) => write!(f, "`n` is {n}: pass the number of elements of `copies`"),
            Error::NullHost { index } => {
                write!(f, "`host` of copy {index} is NULL: pass the address of its bytes")
            }
            Error::Outside { index, offset, size, room } => {
                write!(f, "`size` {size} at `offset` {offset} of copy {index}: stay inside the {room} bytes of `map`")
            }
            Error::Core(error) => error.fmt(f),
        }
    }
}
