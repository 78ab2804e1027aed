//! The CPU addresses of a mapping: made by mmap of the driver's descriptor and released by munmap, or borrowed
//! from host memory; read and written by the copy routines.

use std::ffi::CStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{Error, Result, call};
use crate::sys::fork::{Owner, page_size};

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
    /// True while the driver's memory is mapped there for this region.
    is_mapped: bool,
    owner: Owner,
}

// SAFETY: the addresses are valid in every thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out numbers only.
unsafe impl Sync for Region {}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// The flags of a reservation, which is anonymous memory without access.
const RESERVED: MapFlags = MapFlags::MAP_PRIVATE.union(MapFlags::MAP_ANONYMOUS).union(MapFlags::MAP_NORESERVE);

impl Region {
    /// Maps `len` bytes (a multiple of the page size, not 0) of what `node` has at `offset` (likewise a
    /// multiple), shared, readable and writable.
    pub fn map(node: impl AsFd, offset: u64, len: usize) -> Result<Region> {
        let Some(size) = NonZeroUsize::new(len) else {
            return Err(Error::EmptyRange);
        };
        // The kernel takes all 64 bits of the offset.
        let offset = offset.cast_signed();
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapped = unsafe { mmap(None, size, READ_WRITE, MapFlags::MAP_SHARED, node, offset) };
        let address = mapped.map_err(|errno| Error::of_call(call::MMAP, errno))?.cast();
        Ok(Region { address, len, is_mapped: true, owner: Owner::current() })
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
        if self.is_mapped {
            // SAFETY: mapped by `map`, for this region only.
            let unmapped = unsafe { munmap(self.address.cast(), self.len) };
            unmapped.map_err(|errno| Error::of_call(call::MUNMAP, errno))?;
            self.is_mapped = false;
        }
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
        let Err(errno) = self.replace_by_nothing(before < FILES) else {
            self.is_mapped = false;
            self.exempt_from_dumps_and_locks();
            return Ok(());
        };
        self.unmap()?;
        // A process at the limit of mappings (vm.max_map_count) has room for one more now.
        match self.reserve_unmapped() {
            Ok(()) => log::debug!("closed mapping {self:?} was unmapped first: {errno}"),
            Err(why) => log::warn!(
                "closed mapping {self:?} is unmapped, as it cannot be replaced ({errno}, {why}): later \
                 mappings may get its addresses"
            ),
        }
        Ok(())
    }

    fn size(&self) -> nix::Result<NonZeroUsize> {
        NonZeroUsize::new(self.len).ok_or(Errno::EINVAL)
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
        let flags = RESERVED | MapFlags::MAP_FIXED;
        // SAFETY: replaces what `map` has mapped for this region, and nothing else.
        unsafe { mmap_anonymous(Some(self.address.addr()), self.size()?, ProtFlags::PROT_NONE, flags) }?;
        Ok(())
    }

    /// Maps an empty file in its place: all of it lies beyond the end of that file.
    fn replace_by_empty_file(&self) -> nix::Result<()> {
        let file = empty_file()?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: replaces what `map` has mapped for this region, and nothing else.
        unsafe { mmap(Some(self.address.addr()), self.size()?, READ_WRITE, flags, file, 0) }?;
        Ok(())
    }

    /// Reserves its addresses after it was unmapped, unless another thread has mapped something there.
    fn reserve_unmapped(&self) -> nix::Result<()> {
        let flags = RESERVED | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing, also in kernels before 4.17, which take the address for a hint.
        let reserved = unsafe { mmap_anonymous(Some(self.address.addr()), self.size()?, ProtFlags::PROT_NONE, flags) }?;
        if reserved.addr() != self.address.addr() {
            // SAFETY: mapped above, and not used.
            unsafe { munmap(reserved, self.len) }?;
            return Err(Errno::EEXIST);
        }
        self.exempt_from_dumps_and_locks();
        Ok(())
    }

    /// What replaced the driver's memory holds no data: like that memory, it is not written into core files and
    /// does not count as locked (`mlockall(MCL_FUTURE)`). From then on it is the same as neighbors of its kind,
    /// and the kernel merges them.
    fn exempt_from_dumps_and_locks(&self) {
        let address = self.address().cast();
        // SAFETY: the range is ours and has no content. A failure has no effect on who may access it.
        unsafe {
            libc::madvise(address, self.len, libc::MADV_DONTDUMP);
            libc::munlock(address, self.len);
        }
    }
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

/// The length in whole pages of the host.
pub fn whole_pages(len: usize) -> Result<usize> {
    match len.checked_next_multiple_of(page_size()) {
        Some(len) => Ok(len),
        None => Err(Error::RangeOverflow),
    }
}

fn empty_file() -> nix::Result<OwnedFd> {
    const NAME: &CStr = c"gdrapi-closed-mapping";
    // Some kernels from 6.3 on demand it, if vm.memfd_noexec is 2; earlier ones refuse it.
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let cloexec = MFdFlags::MFD_CLOEXEC;
    match memfd_create(NAME, cloexec | noexec) {
        Err(_) => memfd_create(NAME, cloexec),
        file => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fork::tests::in_child;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn memory(len: usize) -> File {
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"region".as_ptr(), 0)) };
        file.set_len(len as u64).expect("room for a few pages");
        file
    }

    /// Returns whether the page at the address is mapped.
    fn is_mapped(address: *mut u8) -> bool {
        // SAFETY: msync changes no memory; it only looks for mappings.
        unsafe { libc::msync(address.cast(), page_size(), libc::MS_ASYNC) == 0 }
    }

    /// A page of a new file, mapped.
    fn mapped_page() -> Region {
        let page = page_size();
        Region::map(memory(page), 0, page).expect("a page can be mapped")
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
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn unmapped_region_is_reserved_unless_its_addresses_are_in_use() {
        // A forked child has no other thread that gets free addresses.
        let is_reserved = in_child(|| {
            let mut region = mapped_page();
            let is_reserved = region.unmap() == Ok(()) && region.reserve_unmapped() == Ok(());
            let holds = is_reserved && is_mapped(region.address());
            i32::from(holds && region.reserve_unmapped() == Err(Errno::EEXIST))
        });
        assert_eq!(is_reserved, 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn borrowed_region_stays_mapped() {
        let owned = mapped_page();
        let address = NonNull::new(owned.address()).expect("mapped");
        // SAFETY: `owned` stays mapped until the end.
        let mut borrowed = unsafe { Region::borrow(address, owned.len) };
        assert_eq!(borrowed.unmap(), Ok(()));
        assert_eq!(borrowed.retire(), Ok(()));
        drop(borrowed);
        assert!(is_mapped(address.as_ptr()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn lengths_beyond_the_address_space_are_out_of_memory() {
        let len = usize::MAX - page_size() + 1;
        let error = Region::map(memory(page_size()), 0, len).expect_err("no such room");
        assert_eq!(error.errno(), libc::ENOMEM);
    }
}
