//! The CPU addresses of a mapping: made by mmap of the driver's descriptor, given back by munmap,
//! read and written by the copy kernels.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use memmap2::{MmapOptions, MmapRaw};

use crate::error::{Error, Result};
use crate::process;
use crate::transfer;
use crate::types::MappingType;
use crate::uapi::Call;

/// Mapped GPU memory. Raw memory, never a Rust reference: the GPU writes it at any time.
///
/// Dropping it unmaps it, except in a forked child: there the kernel has already left it out, and
/// something else may stand at its address.
pub(crate) struct Region {
    raw: ManuallyDrop<MmapRaw>,
    is_mapped: bool,
    epoch: u64,
}

impl Region {
    /// Maps `len` bytes (a multiple of the page size, not 0) of what `node` has at `offset` (likewise a
    /// multiple), shared, readable and writable.
    pub(crate) fn map(node: &impl AsRawFd, offset: u64, len: usize) -> Result<Region> {
        let raw = MmapOptions::new()
            .len(len)
            .offset(offset)
            .map_raw(node.as_raw_fd());
        match raw {
            Ok(raw) => {
                let raw = ManuallyDrop::new(raw);
                Ok(Region {
                    raw,
                    is_mapped: true,
                    epoch: process::epoch(),
                })
            }
            Err(error) => {
                // Lengths that no address space holds are refused without asking the kernel.
                let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                Err(Error::driver(Call::Mmap, errno))
            }
        }
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }

    /// Mapped bytes: a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Unmaps it; where that fails, it stays as it was.
    pub(crate) fn unmap(&mut self) -> Result<()> {
        if self.epoch != process::epoch() {
            return Err(Error::ForkedChild);
        }
        // SAFETY: the range is the one that mmap returned, and `is_mapped` sees to it that nothing
        // touches it from now on.
        if self.is_mapped && unsafe { libc::munmap(self.address().cast(), self.len()) } != 0 {
            return Err(Error::driver(Call::Munmap, nix::errno::Errno::last_raw()));
        }
        self.is_mapped = false;
        Ok(())
    }

    /// Copies `source` to the bytes from `offset` on.
    pub(crate) fn write(&self, kind: MappingType, offset: usize, source: &[u8]) -> Result<()> {
        let target = self.checked(offset, source.len())?;
        // SAFETY: `checked` saw that the range lies in the mapping, which lives as long as `self`.
        unsafe { transfer::to_mapping(kind, target, source.as_ptr(), source.len()) };
        Ok(())
    }

    /// Copies the bytes from `offset` on to `target`.
    pub(crate) fn read(&self, kind: MappingType, offset: usize, target: &mut [u8]) -> Result<()> {
        let source = self.checked(offset, target.len())?;
        // SAFETY: as in `write`.
        unsafe { transfer::from_mapping(kind, target.as_mut_ptr(), source, target.len()) };
        Ok(())
    }

    fn checked(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if !self.is_mapped {
            return Err(Error::NotMapped);
        }
        let room = self.len().checked_sub(offset).ok_or(Error::OutOfMapping)?;
        if len > room {
            return Err(Error::OutOfMapping);
        }
        Ok(self.address().wrapping_add(offset))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Nobody to tell: `unmap` is there for those who want to know.
        let _ = self.unmap();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{:#x}", self.address(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::FromRawFd;

    fn memory(len: usize) -> File {
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"region".as_ptr(), 0)) };
        file.set_len(len as u64).expect("room for a few pages");
        file
    }

    #[test]
    fn copies_stay_inside() {
        let page = process::page_size();
        let region = Region::map(&memory(page), 0, page).expect("a page can be mapped");
        let kind = MappingType::WriteCombining;
        assert_eq!(region.write(kind, page - 4, b"tail"), Ok(()));
        let mut back = [0; 4];
        assert_eq!(region.read(kind, page - 4, &mut back), Ok(()));
        assert_eq!(&back, b"tail");
        assert_eq!(
            region.write(kind, page - 3, b"tail"),
            Err(Error::OutOfMapping)
        );
        assert_eq!(region.write(kind, page, b""), Ok(()));
        assert_eq!(region.write(kind, page + 1, b""), Err(Error::OutOfMapping));
        assert_eq!(
            region.read(kind, usize::MAX, &mut back),
            Err(Error::OutOfMapping)
        );
    }

    #[test]
    fn lengths_beyond_the_address_space_are_out_of_memory() {
        let page = process::page_size();
        let len = usize::MAX - page + 1;
        let error = Region::map(&memory(page), 0, len).expect_err("no such room");
        assert_eq!(error.errno(), libc::ENOMEM);
    }
}
