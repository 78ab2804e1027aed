//! A mapping of pinned GPU memory into the CPU's address space.
#![forbid(unsafe_code)]

use gdrcopy_core::RawMapping;

use crate::access::{Mapped, MappedSlice, sealed};
use crate::error::Error;

/// GPU memory at addresses of this process. A mapping keeps its pin alive, and is unmapped when it is dropped.
///
/// Threads share a mapping by `&Mapping`. The GPU and CUDA may write the same memory at any time, so there is never a
/// `&[u8]` of it. The trait [`Mapped`] has the copies, words and batches.
///
/// Where the driver is not persistent ([`Gdr::is_persistent`](crate::Gdr::is_persistent)), it takes the mapping away
/// when the memory is freed. An access then raises SIGBUS, which ends the process.
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// std::thread::scope(|s| {
///     s.spawn(|| mapping.write(0, b"from a thread"));
/// });
/// assert_eq!(mapping.read_vec(0, 13)?, b"from a thread");
/// mapping.unmap().map_err(|(_, error)| error)?; // or drop it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    raw: RawMapping,
}

impl Mapping {
    pub(crate) fn of_raw(raw: RawMapping) -> Mapping {
        Mapping { raw }
    }

    /// Unmaps the memory.
    ///
    /// # Errors
    /// The error of munmap, together with the unchanged mapping.
    #[doc(alias = "gdr_unmap")]
    pub fn unmap(self) -> std::result::Result<(), (Mapping, Error)> {
        self.raw.unmap().map_err(|(raw, error)| (Mapping { raw }, error.into()))
    }
}

impl sealed::Sealed for Mapping {}

impl Mapped for Mapping {
    #[inline]
    fn as_slice(&self) -> MappedSlice<'_> {
        let raw = &self.raw;
        MappedSlice::of_region(raw.region(), raw.head(), raw.len(), raw.device_address(), raw.mapping_type())
    }
}
