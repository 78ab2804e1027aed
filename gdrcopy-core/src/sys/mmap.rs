//! The CPU addresses of a mapping: made by mmap of the driver's descriptor and released by munmap, or borrowed
//! from host memory; read and written by the copy routines.

use std::ffi::CStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::{self, Call, Error, Result};
use crate::sync::Mutex;
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
    /// The addresses that are unmapped with it.
    mapped: Option<Arc<Span>>,
    owner: Owner,
}

// SAFETY: the addresses are valid in every thread.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out numbers only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes (a multiple of the page size, not 0) of what `node` has at `offset` (likewise a
    /// multiple), shared, readable and writable. It is mapped anywhere, or in the place of a vacant span, which
    /// keeps it.
    pub fn map(node: &impl AsRawFd, offset: u64, len: usize, place: Option<&Arc<Span>>) -> Result<Region> {
        let owner = Owner::current();
        if let Some(span) = place {
            span.fill(node, offset, len)?;
            return Ok(Region { address: span.address(), len, mapped: None, owner });
        }
        let span = Arc::new(Span::map(node, offset, len)?);
        Ok(Region { address: span.address(), len, mapped: Some(span), owner })
    }

    /// Memory of someone else.
    ///
    /// # Safety
    /// As long as the region is used, the `len` bytes there are readable and writable, and no Rust reference to them is
    /// used.
    pub unsafe fn borrow(address: NonNull<u8>, len: usize) -> Region {
        Region { address, len, mapped: None, owner: Owner::current() }
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

    /// The addresses that are unmapped with it.
    pub fn span(&self) -> Option<&Arc<Span>> {
        self.mapped.as_ref()
    }

    /// Unmaps it; where that fails, it stays as it was.
    pub fn unmap(&mut self) -> Result<()> {
        self.end(Span::unmap)
    }

    /// Takes the driver's memory away, but keeps the addresses reserved for the life of the process: no
    /// later mmap is placed where stale pointers point to, and touching them raises a signal. That is SIGBUS,
    /// as with the driver's own revoked mappings, for the first `FILES` ranges of the process, and SIGSEGV
    /// for later ones and where no empty file can be made.
    ///
    /// Where that fails, the region is unmapped, and its addresses are reserved again if the kernel allows it; where
    /// unmapping fails too, it stays as it was. Allocates nothing.
    pub fn retire(&mut self) -> Result<()> {
        self.end(Span::retire)
    }

    fn end(&mut self, end: impl FnOnce(&Span) -> Result<()>) -> Result<()> {
        self.owner.check()?;
        self.mapped.as_deref().map_or(Ok(()), end)?;
        self.mapped = None;
        Ok(())
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

/// Addresses that `Region::map` got from the kernel. The region shares them with its pin, which takes their memory away
/// for a while.
pub struct Span {
    address: NonZeroUsize,
    len: NonZeroUsize,
    state: Mutex<State>,
}

/// The content of the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The driver's memory.
    Mapped,
    /// A reservation.
    Vacant,
    /// Nothing that is ours to change.
    Ended,
}

impl Span {
    fn map(node: &impl AsRawFd, offset: u64, len: usize) -> Result<Span> {
        match MmapOptions::new().len(len).offset(offset).map_raw(node.as_raw_fd()) {
            Ok(raw) => {
                // Never dropped: memmap2's destructor reports no error, and would unmap in a forked child too.
                let raw = ManuallyDrop::new(raw);
                let address = NonZeroUsize::new(raw.as_mut_ptr().expose_provenance());
                Ok(Span {
                    address: address.expect("mmap never returns null"),
                    len: NonZeroUsize::new(raw.len()).expect("mmap refuses 0"),
                    state: Mutex::new(State::Mapped),
                })
            }
            Err(error) => {
                // Lengths that no address space holds are refused without asking the kernel.
                let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                Err(Error::driver(Call::Mmap, errno))
            }
        }
    }

    fn address(&self) -> NonNull<u8> {
        NonNull::with_exposed_provenance(self.address)
    }

    /// The addresses, as long as they are reserved for memory that comes back.
    pub fn vacant(&self) -> Option<Range<usize>> {
        let start = self.address.get();
        (*self.state.lock() == State::Vacant).then(|| start..start + self.len.get())
    }

    /// Takes the memory away until `fill`. The addresses are reserved, and touching them raises SIGSEGV.
    pub fn vacate(&self) -> Result<()> {
        let mut state = self.state.lock();
        if *state == State::Mapped {
            let replaced = self.replace_by_reservation();
            replaced.map_err(|errno| Error::driver(Call::Mmap, errno as i32))?;
            self.exempt_from_dumps_and_locks();
            *state = State::Vacant;
        }
        Ok(())
    }

    /// Maps what `node` has at `offset`, if the addresses are vacant.
    fn fill(&self, node: &impl AsRawFd, offset: u64, len: usize) -> Result<()> {
        let mut state = self.state.lock();
        if *state != State::Vacant || len != self.len.get() {
            return Err(Error::AddressesTaken { address: self.address.get() });
        }
        let offset = i64::try_from(offset).map_err(|_| Error::RangeOverflow)?;
        // SAFETY: the descriptor is open as long as `node`, which outlives the call.
        let file = unsafe { BorrowedFd::borrow_raw(node.as_raw_fd()) };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapped = self.replace(protection, MapFlags::MAP_SHARED, Some((file, offset)));
        mapped.map_err(|errno| Error::driver(Call::Mmap, errno as i32))?;
        *state = State::Mapped;
        Ok(())
    }

    fn unmap(&self) -> Result<()> {
        let mut state = self.state.lock();
        if *state != State::Ended {
            self.munmap()?;
            *state = State::Ended;
        }
        Ok(())
    }

    /// Removes what is mapped, or reserved, at the addresses.
    fn munmap(&self) -> Result<()> {
        // SAFETY: the range is the one that mmap returned, and is ours until the state is `Ended`.
        match unsafe { libc::munmap(self.address().as_ptr().cast(), self.len.get()) } {
            0 => Ok(()),
            _ => Err(Error::driver(Call::Munmap, Errno::last_raw())),
        }
    }

    /// See [`Region::retire`].
    fn retire(&self) -> Result<()> {
        let mut state = self.state.lock();
        if *state == State::Ended {
            return Ok(());
        }
        let before = RETIRED.fetch_add(1, Ordering::Relaxed);
        match self.replace_by_nothing(before < FILES) {
            Ok(()) => self.exempt_from_dumps_and_locks(),
            Err(errno) => {
                self.munmap()?;
                // A process at the limit of mappings (vm.max_map_count) has room for one more now.
                let reserved = self.reserve_unmapped();
                match reserved {
                    Ok(()) => log::debug!("closed mapping {self:?} was unmapped first: {errno}"),
                    Err(why) => log::warn!(
                        "closed mapping {self:?} is unmapped, as it cannot be replaced ({errno}, {why}): later \
                         mappings may get its addresses"
                    ),
                }
            }
        }
        *state = State::Ended;
        Ok(())
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
        self.replace_by_reservation()
    }

    fn replace_by_reservation(&self) -> nix::Result<()> {
        self.replace(ProtFlags::PROT_NONE, RESERVED, None)
    }

    /// Maps an empty file in its place: all of it lies beyond the end of that file.
    fn replace_by_empty_file(&self) -> nix::Result<()> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        self.replace(protection, MapFlags::MAP_SHARED, Some((empty_file()?.as_fd(), 0)))
    }

    fn replace(&self, protection: ProtFlags, flags: MapFlags, file: Option<(BorrowedFd<'_>, i64)>) -> nix::Result<()> {
        let (address, len) = (Some(self.address), self.len);
        let flags = flags | MapFlags::MAP_FIXED;
        // SAFETY: the range is the one that mmap returned and is still mapped or reserved, so that nothing else of
        // the process is replaced.
        unsafe {
            match file {
                Some((file, offset)) => mmap(address, len, protection, flags, file, offset),
                None => mmap_anonymous(address, len, protection, flags),
            }
        }
        .map(drop)
    }

    /// Reserves its addresses after it was unmapped, unless another thread has mapped something there.
    fn reserve_unmapped(&self) -> nix::Result<()> {
        let flags = RESERVED | MapFlags::MAP_FIXED_NOREPLACE;
        let address = Some(self.address);
        // SAFETY: replaces nothing, also in kernels before 4.17, which take the address for a hint.
        let reserved = unsafe { mmap_anonymous(address, self.len, ProtFlags::PROT_NONE, flags) }?;
        if reserved.addr() == self.address {
            self.exempt_from_dumps_and_locks();
            return Ok(());
        }
        // SAFETY: mapped above, and not used.
        unsafe { munmap(reserved, self.len.get()) }.and(Err(Errno::EEXIST))
    }

    /// What replaced the driver's memory holds no data: like that memory, it is not written into core files and
    /// does not count as locked (`mlockall(MCL_FUTURE)`). From then on it is the same as neighbors of its kind,
    /// and the kernel merges them.
    fn exempt_from_dumps_and_locks(&self) {
        let address = self.address().as_ptr().cast();
        // SAFETY: the range is ours and has no content. A failure has no effect on who may access it.
        unsafe {
            libc::madvise(address, self.len.get(), libc::MADV_DONTDUMP);
            libc::munlock(address, self.len.get());
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.address, self.len)
    }
}

/// The flags of a reservation, which is anonymous memory without access.
const RESERVED: MapFlags = MapFlags::MAP_PRIVATE.union(MapFlags::MAP_ANONYMOUS).union(MapFlags::MAP_NORESERVE);

/// The addresses at which this process has reservations, in ascending order.
#[derive(Debug)]
pub struct Reservations(Vec<Range<usize>>);

impl Reservations {
    /// Reads them from `/proc`.
    pub fn read() -> Result<Reservations> {
        let maps = std::fs::read_to_string("/proc/self/maps").map_err(error::no_maps)?;
        Ok(Reservations::parse(&maps))
    }

    fn parse(maps: &str) -> Reservations {
        let mut all: Vec<Range<usize>> = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (range, access) = (words.next(), words.next());
            let Some((start, end)) = range.and_then(|range| range.split_once('-')) else {
                continue;
            };
            let number = |hex| usize::from_str_radix(hex, 16).unwrap_or(0);
            let (start, end) = (number(start), number(end));
            // Offset and device say nothing; files have an inode.
            if access != Some("---p") || words.nth(2) != Some("0") || words.next().is_some() {
                continue;
            }
            match all.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => all.push(start..end),
            }
        }
        Reservations(all)
    }

    /// Returns whether all of these addresses are reserved.
    pub fn contain(&self, addresses: &Range<usize>) -> bool {
        let after = self.0.partition_point(|range| range.start <= addresses.start);
        let found = after.checked_sub(1).and_then(|index| self.0.get(index));
        found.is_some_and(|range| addresses.end <= range.end)
    }
}

fn empty_file() -> nix::Result<OwnedFd> {
    const NAME: &CStr = c"gdrapi-closed-mapping";
    // Some kernels from 6.3 on demand it, if vm.memfd_noexec is 2; earlier ones refuse it.
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let cloexec = MFdFlags::MFD_CLOEXEC;
    memfd_create(NAME, cloexec | noexec).or_else(|_| memfd_create(NAME, cloexec))
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

    /// A page of a new file, mapped.
    fn mapped_page() -> (usize, Region) {
        let page = crate::sys::fork::page_size();
        (page, Region::map(&memory(page), 0, page, None).expect("a page can be mapped"))
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn retired_region_stays_reserved_unlike_an_unmapped_one() {
        let (page, mut retired) = mapped_page();
        let address = retired.address();
        assert_eq!(retired.retire(), Ok(()));
        drop(retired);
        assert!(is_mapped(address, page));

        let (_, mut unmapped) = mapped_page();
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
        let (page, mut region) = mapped_page();
        let address = region.address();
        let span = Arc::clone(region.span().expect("mapped"));
        assert_eq!(region.unmap(), Ok(()));
        assert_eq!(span.reserve_unmapped(), Ok(()));
        assert!(is_mapped(address, page));
        assert_eq!(span.reserve_unmapped(), Err(Errno::EEXIST));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn borrowed_region_stays_mapped() {
        let (page, owned) = mapped_page();
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
        let error = Region::map(&memory(page), 0, len, None).expect_err("no such room");
        assert_eq!(error.errno(), libc::ENOMEM);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn vacated_span_is_reserved_until_it_is_filled_or_unmapped() {
        let page = crate::sys::fork::page_size();
        let file = memory(page);
        let mut region = Region::map(&file, 0, page, None).expect("a page can be mapped");
        let span = Arc::clone(region.span().expect("mapped"));
        let is_reserved = || {
            let addresses = span.vacant().expect("vacant");
            Reservations::read().expect("/proc").contain(&addresses)
        };
        assert_eq!((span.vacate(), span.vacate()), (Ok(()), Ok(())));
        assert!(is_reserved());
        drop(Region::map(&file, 0, page, Some(&span)).expect("vacant"));
        assert_eq!(span.vacant(), None);
        let error = Region::map(&file, 0, page, Some(&span)).expect_err("filled");
        assert_eq!(error, Error::AddressesTaken { address: region.address().addr() });
        assert_eq!(span.vacate(), Ok(()));
        assert_eq!(region.unmap(), Ok(()));
        assert!(!is_mapped(region.address(), page));
        assert_eq!((span.vacant(), span.vacate()), (None, Ok(())));
    }

    #[test]
    fn reservations_are_anonymous_and_inaccessible() {
        let maps = "1000-2000 ---p 00000000 00:00 0 \n2000-4000 ---p 00000000 00:00 0 \n\
                    4000-5000 rw-p 00000000 00:00 0 \n5000-6000 ---p 00000000 08:01 77 /lib/libc.so\n\
                    6000-7000 ---p 00000000 00:00 0 [stack]\n8000-9000 ---p 00000000 00:00 0\n";
        let reserved = Reservations::parse(maps);
        for (range, wanted) in [
            (0x1000..0x4000, true),
            (0x1800..0x3000, true),
            (0x8000..0x9000, true),
            (0x3000..0x5000, false),
            (0x5000..0x6000, false),
            (0x6000..0x7000, false),
            (0x0..0x1000, false),
            (0x9000..0xa000, false),
        ] {
            assert_eq!(reserved.contain(&range), wanted, "{range:x?}");
        }
    }
}
