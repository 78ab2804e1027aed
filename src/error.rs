//! The errors of a C function, which include those of gdrcopy-core.
#![forbid(unsafe_code)]

/// The result of the C API layer's fallible functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why a C function failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// An error of gdrcopy-core.
    #[error(transparent)]
    Core(#[from] gdrcopy_core::Error),
    /// The pointer argument with this name is NULL.
    #[error("`{0}` is NULL: pass a valid pointer")]
    Null(&'static str),
    /// The argument with this name is not a live handle.
    #[error("`{0}` is not a live handle: it was never issued, or was closed or unpinned before")]
    UnknownHandle(&'static str),
    /// The pin belongs to another `gdr_t`.
    #[error("`handle` belongs to another gdr_t: pass the one its buffer was pinned with")]
    ForeignPin,
    /// The buffer does not start at a page boundary, and the program has not set `GDRCOPY_ALLOW_UNALIGNED_MAP`.
    #[error(
        "device address {address:#x} does not start a page (64 KiB; with dma-bufs the host's), so its pin cannot be \
         mapped: align it, or set GDRCOPY_ALLOW_UNALIGNED_MAP=1"
    )]
    UnalignedMap { address: u64 },
    /// The buffer is not mapped.
    #[error("the buffer is not mapped: call gdr_map first")]
    NotMapped,
    /// The map flag has an unknown value.
    #[error("`flags` = {0} is not a gdr_map_flags_t value (0 to 3)")]
    UnknownMapFlag(i32),
    /// The attribute has an unknown value.
    #[error("`attr` = {0} is not a gdr_attr_t value (1 to 3)")]
    UnknownAttribute(u32),
    /// The mapping type has an unknown value.
    #[error("{0} is not a gdr_mapping_type_t value (0 to 3)")]
    UnknownMappingType(u32),
    /// This thread is in another call for the same handle.
    #[error(
        "this thread is in another call for the same handle: do not call from a memory hook or a signal handler for a \
         handle that is just being mapped or unmapped"
    )]
    InUse,
    /// This library panicked.
    #[error("internal error of libgdrapi: please report it")]
    Panicked,
}

impl Error {
    /// The positive errno value that the C function returns.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            Error::Core(error) => error.errno(),
            Error::Panicked => libc::EIO,
            Error::InUse => libc::EDEADLK,
            Error::Null(_)
            | Error::UnknownHandle(_)
            | Error::ForeignPin
            | Error::UnalignedMap { .. }
            | Error::NotMapped
            | Error::UnknownMapFlag(_)
            | Error::UnknownAttribute(_)
            | Error::UnknownMappingType(_) => libc::EINVAL,
        }
    }
}
