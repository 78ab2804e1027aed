//! A mapping of pinned GPU memory into the CPU's address space.
#![forbid(unsafe_code)]

use crate::copy;
use crate::copy::mixed::Live;
use crate::error::{Error, Result};
use crate::pin_state::MappingGuard;
use crate::sys::mmap::Region;
use crate::types::MappingType;

/// GPU memory at addresses of this process. It keeps its pin, and is unmapped when dropped.
///
/// The GPU, and CUDA on its behalf, may write the same memory at any time; so no slice of it is ever
/// returned: copy with [`Mapping::write`] and [`Mapping::read`], or take the raw address.
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: the addresses first, the pin last.
    region: Region,
    _live: Live,
    _of_pin: MappingGuard,
    mapping_type: MappingType,
}

impl Mapping {
    pub(crate) fn new(region: Region, mapping_type: MappingType, of_pin: MappingGuard) -> Mapping {
        Mapping {
            region,
            _live: Live::new(mapping_type),
            _of_pin: of_pin,
            mapping_type,
        }
    }

    /// Address of the first mapped byte, which is the byte at [`Info::va`](crate::Info::va).
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.region.address()
    }

    /// Mapped bytes: what was asked for, rounded up to host pages.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// How the CPU caches it.
    pub fn mapping_type(&self) -> MappingType {
        self.mapping_type
    }

    /// Copies `src` to the GPU memory from byte `offset` of the mapping on.
    ///
    /// On return, the bytes are posted to the GPU before any later call's data. Naturally aligned accesses of
    /// 1, 2, 4 or 8 bytes are a single store.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`]; nothing is written then.
    pub fn write(&mut self, offset: usize, src: &[u8]) -> Result<()> {
        copy::write(&self.region, self.mapping_type, offset, src)
    }

    /// Copies the GPU memory from byte `offset` of the mapping on to `dst`.
    ///
    /// The bytes are no older than the call, and no older than what earlier calls of this thread
    /// returned. Naturally aligned accesses of 1, 2, 4 or 8 bytes are a single load.
    ///
    /// # Errors
    /// [`Error::OutOfMapping`]; nothing is read then.
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<()> {
        copy::read(&self.region, self.mapping_type, offset, dst)
    }

    /// Takes the GPU memory away and leaves the addresses reserved, so that a stale pointer into the
    /// mapping raises SIGBUS as long as the process lives.
    #[doc(hidden)]
    pub fn retire(mut self) -> std::result::Result<(), (Mapping, Error)> {
        self.region.retire().map_err(|error| (self, error))
    }

    /// Unmaps it.
    ///
    /// # Errors
    /// What munmap returned, with the mapping, which is unchanged.
    pub fn unmap(mut self) -> std::result::Result<(), (Mapping, Error)> {
        self.region.unmap().map_err(|error| (self, error))
    }
}
