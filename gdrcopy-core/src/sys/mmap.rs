//! The CPU addresses of a mapping: made by mmap of the driver's descriptor and released by munmap, or borrowed
//! from host memory; read and written by the copy routines.

use std::ffi::CStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Call, Error, Result};
use crate::sys::fork::Owner;

/// Ranges of a process that are replaced by empty files. Neighboring files are never merged, and a process has
/// 65,530 mappings at most by default (`vm.max_map_count`), so later ranges become anonymous memory.
const FILES: usize = 1000;

/// The ranges that were replaced, or meant to be. A forked child inherits both them and their number.
static RETIRED: AtomicUsize = AtomicUsize::new(0);

/// Memory that the GPU shares. Raw memory, never a Rust reference: the GPU writes it at any time.
///
/// Dropping it unmaps what `map` has mapped, except in a forked child: the child has not inherited the mapping, and
/// may have mapped something else at its address.
pub struct Region {
    address: NonNull<u8>,
    len: usize,
    /// Mapped here, and not unmapped yet.
    is_mapped: bool,
    owner: Owner,
}

// SAFETY: the addresses are valid in every thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out numbers only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes (a multiple of the page size, not 0) of what `node` has at `offset` (likewise a
    /// multiple), shared, readable and writable.
    pub fn map(node: &impl AsRawFd, offset: u64, len: usize) -> Result<Region> {
        let raw = MmapOptions::new().len(len).offset(offset).map_raw(node.as_raw_fd());
        match raw {
            Ok(raw) => {
                // Never dropped: memmap2's destructor reports no error, and would unmap in a forked child too.
                let raw = ManuallyDrop::new(raw);
                Ok(Region {
                    address: NonNull::new(raw.as_mut_ptr()).expect("mmap never returns null"),
                    len: raw.len(),
                    is_mapped: true,
                    owner: Owner::current(),
                })
            }
            Err(error) => {
                // Lengths that no address space holds are refused without asking the kernel.
                let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                Err(Error::driver(Call::Mmap, errno))
            }
        }
    }

    /// Memory of someone else.
    ///
    /// # Safety
    /// As long as the region is used, the `len` bytes there are readable and writable, and no Rust reference to them is
    /// used.
    pub unsafe fn borrow(address: NonNull<u8>, len: usize) -> Region {
        Region { address, len, is_mapped: false, owner: Owner::current() }
    }

    /// Address of the first byte.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Bytes in it; of what `map` has mapped, a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The process that mapped it.
    #[inline]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Unmaps it; where that fails, it stays as it was.
    pub fn unmap(&mut self) -> Result<()> {
        self.owner.check()?;
        // SAFETY: the range is the one that mmap returned, and while `is_mapped` is false nothing here
        // touches it.
        if self.is_mapped && unsafe { libc::munmap(self.address().cast(), self.len()) } != 0 {
            return Err(Error::driver(Call::Munmap, Errno::last_raw()));
        }
        self.is_mapped = false;
        Ok(())
    }

    /// Takes the driver's memory away, but keeps the addresses reserved for the life of the process: no
    /// later mmap is placed where stale pointers point to, and touching them raises a signal. That is SIGBUS,
    /// as with the driver's own revoked mappings, for the first `FILES` ranges of the process, and SIGSEGV
    /// for later ones and where no empty file can be made.
    ///
    /// Where that fails, the region is unmapped, and its addresses are reserved again if the kernel allows it; where
    /// unmapping fails too, it stays as it was. Allocates nothing.
    pub fn retire(&mut self) -> Result<()> {
        self.owner.check()?;
        if !self.is_mapped {
            return Ok(());
        }
        let before = RETIRED.fetch_add(1, Ordering::Relaxed);
        match self.replace_by_nothing(before < FILES) {
            Ok(()) => {
                self.is_mapped = false;
                self.exempt_from_dumps_and_locks();
                Ok(())
            }
            Err(errno) => {
                self.unmap()?;
                // A process at the limit of mappings (vm.max_map_count) has room for one more now.
                let reserved = self.reserve_unmapped();
                match reserved {
                    Ok(()) => log::debug!("closed mapping {self:?} was unmapped first: {errno}"),
                    Err(why) => log::warn!(
                        "closed mapping {self:?} is unmapped, as it cannot be replaced ({errno}, {why}): later \
                         mappings may get its addresses"
                    ),
                }
                Ok(())
            }
        }
    }

    /// Puts memory in its place that cannot be accessed.
    fn replace_by_nothing(&self, by_file: bool) -> nix::Result<()> {
        if by_file {
            match self.replace_by_empty_file() {
                Ok(()) => return Ok(()),
                Err(errno) => log::warn!(
                    "closed mapping {self:?} raises SIGSEGV instead of SIGBUS, as there is no empty file for it: {errno}"
                ),
            }
        }
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_ANONYMOUS | MapFlags::MAP_NORESERVE;
        self.replace(ProtFlags::PROT_NONE, flags, None)
    }

    /// Maps an empty file in its place: all of it lies beyond the end of that file.
    fn replace_by_empty_file(&self) -> nix::Result<()> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        self.replace(protection, MapFlags::MAP_SHARED, Some(&empty_file()?))
    }

    fn replace(
        &self,
        protection: ProtFlags,
        flags: MapFlags,
        file: Option<&OwnedFd>,
    ) -> nix::Result<()> {
        let (address, len) = (NonZeroUsize::new(self.address().addr()), self.len());
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let flags = flags | MapFlags::MAP_FIXED;
        // SAFETY: the range is the one that mmap returned and is still mapped, so that nothing else of
        // the process is replaced.
        unsafe {
            match file {
                Some(file) => mmap(address, len, protection, flags, file, 0),
                None => mmap_anonymous(address, len, protection, flags),
            }
        }
        .map(drop)
    }

    /// Reserves its addresses after it was unmapped, unless another thread has mapped something there.
    fn reserve_unmapped(&self) -> nix::Result<()> {
        let address = NonZeroUsize::new(self.address().addr());
        let len = NonZeroUsize::new(self.len()).ok_or(Errno::EINVAL)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_ANONYMOUS | MapFlags::MAP_NORESERVE;
        let flags = flags | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing, also in kernels before 4.17, which take the address for a hint.
        let reserved = unsafe { mmap_anonymous(address, len, ProtFlags::PROT_NONE, flags) }?;
        if reserved.as_ptr().cast() == self.address() {
            self.exempt_from_dumps_and_locks();
            return Ok(());
        }
        // SAFETY: mapped above, and not used.
        unsafe { munmap(reserved, self.len()) }.and(Err(Errno::EEXIST))
    }

    /// What replaced the driver's memory holds no data: like that memory, it is not written into core files and
    /// does not count as locked (`mlockall(MCL_FUTURE)`). From then on it is the same as neighbors of its kind,
    /// and the kernel merges them.
    fn exempt_from_dumps_and_locks(&self) {
        // SAFETY: the range is ours and has no content. A failure has no effect on who may access it.
        unsafe {
            libc::madvise(self.address().cast(), self.len(), libc::MADV_DONTDUMP);
            libc::munlock(self.address().cast(), self.len());
        }
    }
}

fn empty_file() -> nix::Result<OwnedFd> {
    const NAME: &CStr = c"gdrapi-closed-mapping";
    // Some kernels from 6.3 on demand it, if vm.memfd_noexec is 2; earlier ones refuse it.
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let cloexec = MFdFlags::MFD_CLOEXEC;
    memfd_create(NAME, cloexec | noexec).or_else(|_| memfd_create(NAME, cloexec))
}

impl Drop for Region {
    fn drop(&mut self) {
        // A destructor cannot return the error; callers that want it call `unmap`.
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

    /// Whether anything is mapped at the address.
    fn is_mapped(address: *mut u8, len: usize) -> bool {
        // SAFETY: msync changes no memory; it only looks for mappings.
        unsafe { libc::msync(address.cast(), len, libc::MS_ASYNC) == 0 }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn retired_region_stays_reserved_unlike_an_unmapped_one() {
        let page = crate::sys::fork::page_size();
        let file = memory(page);
        let mut retired = Region::map(&file, 0, page).expect("a page can be mapped");
        let address = retired.address();
        assert_eq!(retired.retire(), Ok(()));
        drop(retired);
        assert!(is_mapped(address, page));

        let mut unmapped = Region::map(&file, 0, page).expect("a page can be mapped");
        let address = unmapped.address();
        assert_eq!(unmapped.unmap(), Ok(()));
        assert!(!is_mapped(address, page));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn empty_file_cannot_become_executable_where_the_kernel_knows_that() {
        const F_SEAL_EXEC: i32 = 0x20;
        let flags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
        let is_known = memfd_create(c"probe", flags).is_ok();
        let file = empty_file().expect("a descriptor");
        // SAFETY: the command only reads.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        assert_eq!(seals & F_SEAL_EXEC != 0, is_known);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn unmapped_region_is_reserved_unless_its_addresses_are_in_use() {
        let page = crate::sys::fork::page_size();
        let mut region = Region::map(&memory(page), 0, page).expect("a page can be mapped");
        let address = region.address();
        assert_eq!(region.unmap(), Ok(()));
        assert_eq!(region.reserve_unmapped(), Ok(()));
        assert!(is_mapped(address, page));
        assert_eq!(region.reserve_unmapped(), Err(Errno::EEXIST));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn borrowed_region_stays_mapped() {
        let page = crate::sys::fork::page_size();
        let file = memory(page);
        let owned = Region::map(&file, 0, page).expect("a page can be mapped");
        let address = NonNull::new(owned.address()).expect("mapped");
        // SAFETY: `owned` stays mapped until the end.
        let mut borrowed = unsafe { Region::borrow(address, page) };
        assert_eq!(borrowed.unmap(), Ok(()));
        assert_eq!(borrowed.retire(), Ok(()));
        drop(borrowed);
        assert!(is_mapped(address.as_ptr(), page));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn lengths_beyond_the_address_space_are_out_of_memory() {
        let page = crate::sys::fork::page_size();
        let len = usize::MAX - page + 1;
        let error = Region::map(&memory(page), 0, len).expect_err("no such room");
        assert_eq!(error.errno(), libc::ENOMEM);
    }
}
