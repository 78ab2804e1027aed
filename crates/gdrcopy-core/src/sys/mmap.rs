//! The CPU addresses of a mapping, which is made by mmap of the driver's descriptor, or borrowed from host memory.

use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use libc::c_void;
use nix::errno::Errno;
use nix::sys::mman::{
    MRemapFlags, MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munlock, munmap,
};

use crate::error::{Error, Result, call};
use crate::sys::fork::{Owner, page_size};

/// Memory that the CPU and the GPU share. No Rust reference to it exists, because the GPU writes it at any time.
///
/// Dropping it unmaps what `map` has mapped, except in a forked child, which has not inherited the mapping, and may
/// have mapped something else at the same addresses.
pub struct Region {
    address: NonNull<u8>,
    len: usize,
    /// True after `map`, until the region is unmapped. Always false in a region that `borrow` made.
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
    /// Maps `len` bytes of the file `node` from `offset` on, shared, readable and writable. Both numbers are multiples
    /// of the page size, and `len` is not 0.
    pub fn map(node: impl AsFd, offset: u64, len: usize) -> Result<Region> {
        let Some(size) = NonZeroUsize::new(len) else {
            return Err(Error::EmptyRange);
        };
        // The offset of mmap has a signed type, but the kernel takes all 64 bits.
        let offset = offset.cast_signed();
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let mapped = unsafe { mmap(None, size, READ_WRITE, MapFlags::MAP_SHARED, node, offset) };
        let address = mapped.map_err(|errno| Error::of_call(call::MMAP, errno))?.cast();
        Ok(Region { address, len, is_mapped: true, owner: Owner::current() })
    }

    /// Returns a region of memory that other code has mapped.
    ///
    /// # Safety
    /// As long as the region is used, the `len` bytes from `address` on are readable and writable, and no Rust
    /// reference to them is used.
    pub unsafe fn borrow(address: NonNull<u8>, len: usize) -> Region {
        Region { address, len, is_mapped: false, owner: Owner::current() }
    }

    /// Address of the first byte.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// The number of bytes, a multiple of the page size unless the region is borrowed.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The process that made the region.
    #[inline]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Unmaps the region, unless `borrow` made it. After an error, the region is unchanged.
    pub fn unmap(&mut self) -> Result<()> {
        self.owner.check()?;
        if self.is_mapped {
            // SAFETY: the range was mapped by `map`, for this region only.
            let unmapped = unsafe { munmap(self.address.cast(), self.len) };
            unmapped.map_err(|errno| Error::of_call(call::MUNMAP, errno))?;
            self.is_mapped = false;
        }
        Ok(())
    }

    /// Unmaps the driver's memory, but keeps the addresses reserved for the life of the process. So no later mmap gets
    /// the addresses of stale pointers, and accesses by stale pointers raise SIGSEGV.
    ///
    /// A reservation replaces the mapping in one step. If that step fails, the region is unmapped, and its addresses
    /// are then reserved if possible. If unmapping fails too, the region is unchanged. Allocates nothing.
    pub fn retire(&mut self) -> Result<()> {
        self.owner.check()?;
        if !self.is_mapped {
            return Ok(());
        }
        // SAFETY: `map` has mapped the range for this region only.
        let Err(errno) = (unsafe { reserve(Some(self.address.cast()), self.len) }) else {
            self.is_mapped = false;
            self.exempt_from_dumps();
            return Ok(());
        };
        self.unmap()?;
        // The region is unmapped now, so even a process at the limit of mappings (vm.max_map_count) can map once more.
        match self.reserve_unmapped() {
            Ok(()) => log::debug!("closed mapping {self:?} was unmapped first: {errno}"),
            Err(why) => log::warn!(
                "closed mapping {self:?} is unmapped, as it cannot be replaced ({errno}, {why}): later \
                 mappings may get its addresses"
            ),
        }
        Ok(())
    }

    /// Reserves the region's addresses after it was unmapped, unless another thread has mapped something there.
    fn reserve_unmapped(&self) -> nix::Result<()> {
        let flags = RESERVED | MapFlags::MAP_FIXED_NOREPLACE;
        let size = NonZeroUsize::new(self.len).ok_or(Errno::EINVAL)?;
        // SAFETY: the call replaces nothing, even in Linux before 4.17, which treats the address as a hint.
        let reserved = unsafe { mmap_anonymous(Some(self.address.addr()), size, ProtFlags::PROT_NONE, flags) }?;
        if reserved.addr() != self.address.addr() {
            // SAFETY: the range was mapped above, and nothing uses it.
            unsafe { munmap(reserved, self.len) }?;
            return Err(Errno::EEXIST);
        }
        // SAFETY: the range was reserved above, and has no data.
        let _ = unsafe { munlock(reserved, self.len) };
        self.exempt_from_dumps();
        Ok(())
    }

    /// Keeps the reservation, which has no data, out of core files. The kernel then merges it with neighboring
    /// reservations, because they have the same attributes.
    fn exempt_from_dumps(&self) {
        // SAFETY: the range is ours and has no content. The call does not change which code may access it.
        let _ = unsafe { madvise(self.address.cast(), self.len, MmapAdvise::MADV_DONTDUMP) };
    }
}

/// Reserves addresses by memory that cannot be accessed, and that is not locked, even after `mlockall(MCL_FUTURE)`.
/// With an address, replaces what is mapped there.
///
/// # Safety
/// With an address, the range is the caller's, and its content is not needed any more.
pub unsafe fn reserve(address: Option<NonNull<c_void>>, len: usize) -> nix::Result<NonNull<c_void>> {
    let size = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
    let in_place = if address.is_some() { MapFlags::MAP_FIXED } else { MapFlags::empty() };
    // SAFETY: contract of this function; without an address, no other memory is touched.
    match unsafe { mmap_anonymous(address.map(NonNull::addr), size, ProtFlags::PROT_NONE, RESERVED | in_place) } {
        // The process locks its memory (`mlockall`), and may not lock `len` more bytes.
        // SAFETY: contract of this function.
        Err(Errno::EAGAIN) => unsafe { reserve_unlocked(address, len) },
        Err(errno) => Err(errno),
        Ok(reserved) => {
            // SAFETY: the range is new, and has no content.
            let _ = unsafe { munlock(reserved, len) };
            Ok(reserved)
        }
    }
}

/// Reserves one page, unlocks it, and extends it to `len` bytes. The limit of locked memory ignores unlocked memory.
///
/// # Safety
/// The contract of [`reserve`].
unsafe fn reserve_unlocked(address: Option<NonNull<c_void>>, len: usize) -> nix::Result<NonNull<c_void>> {
    let page = page_size();
    let size = NonZeroUsize::new(page).ok_or(Errno::EINVAL)?;
    let in_place = if address.is_some() { MRemapFlags::MREMAP_FIXED } else { MRemapFlags::empty() };
    // SAFETY: contract of this function; the page is new, and no one else has its address.
    unsafe {
        let first = mmap_anonymous(None, size, ProtFlags::PROT_NONE, RESERVED)?;
        let _ = munlock(first, page);
        let reserved = mremap(first, page, len, MRemapFlags::MREMAP_MAYMOVE | in_place, address);
        if reserved.is_err() {
            let _ = munmap(first, page);
        }
        reserved
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

/// Returns the length rounded up to whole pages of the host.
pub fn whole_pages(len: usize) -> Result<usize> {
    match len.checked_next_multiple_of(page_size()) {
        Some(len) => Ok(len),
        None => Err(Error::RangeOverflow),
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;
    use crate::sys::fork::tests::in_child;

    /// Returns whether the page at the address is mapped.
    fn is_mapped(address: *mut u8) -> bool {
        // SAFETY: msync changes no memory; it only looks for mappings.
        unsafe { libc::msync(address.cast(), page_size(), libc::MS_ASYNC) == 0 }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn unmapped_region_is_reserved_unless_its_addresses_are_in_use() {
        // This runs in a forked child, where no other thread can map something at the addresses that become free.
        let is_reserved = in_child(|| {
            let file = memfd_create(c"region", MFdFlags::empty()).expect("a file");
            let mut region = Region::map(file, 0, page_size()).expect("a page can be mapped");
            let is_reserved = region.unmap() == Ok(()) && region.reserve_unmapped() == Ok(());
            let holds = is_reserved && is_mapped(region.address());
            i32::from(holds && region.reserve_unmapped() == Err(Errno::EEXIST))
        });
        assert_eq!(is_reserved, 1);
    }
}
