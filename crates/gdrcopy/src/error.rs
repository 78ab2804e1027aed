//! The errors of the crate.
#![forbid(unsafe_code)]

/// The result of a function of CUDA that failed.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::memory::CudaAllocator;
/// use gdrcopy::{Error, GdrError};
/// match CudaAllocator::new(1000) {
///     Err(Error::Gdr(GdrError::Cuda { call, error, .. })) => println!("{call}: {}", error.code),
///     result => drop(result?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use gdrcopy_core::error::CudaError;
use gdrcopy_core::error::Errno;
/// The error that [`Error::Gdr`] contains: one of the driver, of CUDA, or of a pin and its mapping.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Error, Gdr, GdrError};
/// match Gdr::open() {
///     Err(Error::Gdr(GdrError::DriverTooOld { driver, .. })) => println!("update gdrdrv {driver}"),
///     result => drop(result?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use gdrcopy_core::error::Error as GdrError;
/// The errno of a system call that failed.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::{Error, Gdr, GdrError};
/// match Gdr::options().device_path("/dev/none").open() {
///     Err(Error::Gdr(GdrError::Driver { error, .. })) => println!("errno {}: {error}", error.errno()),
///     result => drop(result?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use gdrcopy_core::error::OsError;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. The text says what to do.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::{Error, Mapped};
/// let outside = mapping.write(usize::MAX, b"x");
/// assert!(matches!(outside, Err(Error::OutOfMapping { len: 1, .. })));
/// let error = std::io::Error::from(outside.unwrap_err());
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the driver, of CUDA, or of a pin and its mapping.
    #[error(transparent)]
    Gdr(#[from] GdrError),
    /// Bytes that are not all in a mapping or slice.
    #[non_exhaustive]
    #[error("{len} bytes at {offset} are not all in the {room} bytes of the mapping or slice")]
    OutOfMapping {
        /// The offset at which the bytes start.
        offset: usize,
        /// The number of bytes, or `usize::MAX` if the number is larger than that.
        len: usize,
        /// The number of bytes of the mapping or slice.
        room: usize,
    },
    /// A range of elements that extends past the end of an array.
    #[non_exhaustive]
    #[error("{count} elements from {index} on are not all in the {len} of the array")]
    OutOfArray {
        /// The index of the first element.
        index: usize,
        /// The number of elements from `index` on.
        count: usize,
        /// The number of elements of the array.
        len: usize,
    },
    /// An element that does not start at a multiple of its size.
    #[non_exhaustive]
    #[error("offset {offset} puts the element at an address that is not a multiple of its size, {size}: align it")]
    UnalignedWord {
        /// Offset in bytes from the start of the mapping or slice.
        offset: usize,
        /// Size of the element in bytes.
        size: usize,
    },
    /// An alignment that is not a power of two.
    #[non_exhaustive]
    #[error("the alignment {align} is not a power of two: pass 1, 2, 4, ...")]
    InvalidAlignment {
        /// The alignment in bytes.
        align: usize,
    },
    /// A pool of a fixed range has no room for the buffer.
    #[error("the pool's memory has no free range of this size: drop buffers, or use an allocator")]
    PoolExhausted,
    /// The deadline of [`Word::spin_until`](crate::Word::spin_until) has passed.
    #[error("the deadline passed before the GPU wrote the value")]
    TimedOut,
}

impl Error {
    /// Returns the positive errno value of the error.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Gdr(error) => error.errno(),
            Error::PoolExhausted => Errno::ENOMEM as i32,
            Error::TimedOut => Errno::ETIMEDOUT as i32,
            Error::OutOfMapping { .. }
            | Error::OutOfArray { .. }
            | Error::UnalignedWord { .. }
            | Error::InvalidAlignment { .. } => Errno::EINVAL as i32,
        }
    }

    /// Returns whether something is used up: BAR1, memory, a pool's range of addresses, or the process's limit of
    /// mappings or of file descriptors. Then unpinning something can help.
    pub fn is_shortage(&self) -> bool {
        [Errno::ENOMEM, Errno::EMFILE, Errno::ENFILE].contains(&Errno::from_raw(self.errno()))
    }
}

impl From<Error> for std::io::Error {
    /// Returns an error with the same text, and with the kind of the errno.
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
