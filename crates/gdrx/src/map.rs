//! Mappings that callers have described to libgdrx (`gdrx_map`), and copies to and from these mappings.

use std::ffi::{c_int, c_void};
use std::mem::{self, offset_of, size_of};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::{fs, process, slice};

use gdrcopy_core::copy::{self, mixed};
use gdrcopy_core::routines::{Alike, CheckFn, Item, Shape, Shaped};
use gdrcopy_core::sys::fork::{self, PerProcess};
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::{MappingType, raw};
use gdrcopy_core::{heap, stderr, variables};

use crate::error::{Error, Result};

/// A mapping, or a part of one, as a caller has described it to `gdrx_attach_mapping`.
#[derive(Debug)]
#[repr(C)]
pub struct gdrx_map {
    address: *mut u8,
    size: usize,
    mapping_type: u32,
    reserved: u32,
    /// The [`identity`] of the process that has attached the map.
    process: u64,
    several_types: *const AtomicBool,
}

/// A copy to or from a map.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct gdrx_copy {
    /// The offset of the copy's first byte in the map.
    pub offset: usize,
    /// The host address that the bytes are read from or written to.
    pub host: *mut c_void,
    /// The number of bytes.
    pub size: usize,
}

impl gdrx_map {
    /// Returns a map of the `size` bytes from `address` on. They are part of a mapping that has this type and
    /// `mapped_size` bytes.
    pub(crate) fn attach(mapping_type: u32, mapped_size: u64, address: *mut c_void, size: usize) -> Result<gdrx_map> {
        prepare()?;
        let Some(known) = raw::mapping_type(mapping_type) else {
            return Err(Error::NotMapped { mapping_type });
        };
        if address.is_null() {
            return Err(Error::Null("address"));
        }
        if size == 0 || size as u64 > mapped_size {
            return Err(Error::Size { size, mapped_size });
        }
        fork::enter()?;
        HAS_ATTACHED.get(|_| ())?;
        Ok(gdrx_map {
            address: address.cast(),
            size,
            mapping_type,
            reserved: 0,
            process: this_process()?,
            several_types: mixed::record(known),
        })
    }

    /// Maps `size` bytes of a dma-buf from byte `offset` on. CPU mappings of the dma-buf have the type `mapping_type`.
    pub(crate) fn map_dmabuf(fd: c_int, offset: u64, size: usize, mapping_type: u32) -> Result<gdrx_map> {
        if fd < 0 {
            return Err(Error::NotADescriptor(fd));
        }
        const LARGEST: usize = isize::MAX as usize / 2;
        if size == 0 || size > LARGEST {
            return Err(Error::Size { size, mapped_size: LARGEST as u64 });
        }
        let page = fork::page_size();
        let head = offset as usize % page;
        let len = (head + size).next_multiple_of(page);
        // SAFETY: the number is only passed to mmap, which refuses a number that is not an open descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let region = Region::map(fd, offset - head as u64, len)?;
        let address = region.address().wrapping_add(head).cast();
        let map = gdrx_map::attach(mapping_type, size as u64, address, size)?;
        mem::forget(region); // The region stays mapped until `unmap_dmabuf`.
        Ok(map)
    }

    /// Unmaps the bytes that `map_dmabuf` has mapped. After that, the map is no longer attached.
    ///
    /// # Safety
    /// `map_dmabuf` has returned this map, and the map has not changed. No access is in progress.
    pub(crate) unsafe fn unmap_dmabuf(&mut self) -> Result<()> {
        self.mapping_type()?;
        let page = fork::page_size();
        let head = self.address.addr() % page;
        let len = (head + self.size).next_multiple_of(page);
        // SAFETY: these are the pages that `map_dmabuf` has mapped: contract of this function.
        if unsafe { libc::munmap(self.address.wrapping_sub(head).cast(), len) } != 0 {
            return Err(Error::NotADmaBuf);
        }
        self.mapping_type = 0;
        Ok(())
    }

    /// Returns the map at a pointer, or an error for NULL.
    ///
    /// # Safety
    /// `map` is NULL, or valid for reads while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(map: *const gdrx_map) -> Result<&'a gdrx_map> {
        // SAFETY: contract of this function.
        let map = unsafe { map.as_ref() };
        map.ok_or(Error::Null("map"))
    }

    /// Returns the mapping's type. Returns `None` if another process has attached the map, or if another copy of
    /// the library has, and this copy has not called [`identity`] yet.
    #[inline(always)]
    fn known_type(&self) -> Option<MappingType> {
        let mapping_type = raw::mapping_type(self.mapping_type)?;
        if Some(&self.process) == THIS_PROCESS.current() { Some(mapping_type) } else { None }
    }

    /// Returns the mapping's type, or an error if this process has not attached the map.
    #[inline(always)]
    pub(crate) fn mapping_type(&self) -> Result<MappingType> {
        match self.known_type() {
            Some(mapping_type) => Ok(mapping_type),
            None => self.find_type(),
        }
    }

    /// Computes the process's [`identity`], and then returns the mapping's type, or an error if this process has not
    /// attached the map.
    #[cold]
    fn find_type(&self) -> Result<MappingType> {
        let Some(mapping_type) = raw::mapping_type(self.mapping_type) else {
            return Err(Error::NotAttached);
        };
        if self.process == this_process()? {
            return Ok(mapping_type);
        }
        Err(gdrcopy_core::Error::ForkedChild.into())
    }

    /// The CPU address of the map's first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.address
    }

    /// Returns the address of copy number `index` in the mapping. It is an error if the copy is not inside the map,
    /// or has no host address.
    #[inline(always)]
    pub(crate) fn place(&self, index: usize, copy: &gdrx_copy) -> Result<*mut u8> {
        let &gdrx_copy { offset, host, size } = copy;
        if size > self.size || offset > self.size - size {
            return Err(Error::Outside { index, offset, size, room: self.size });
        }
        if host.is_null() && size > 0 {
            return Err(Error::NullHost { index });
        }
        Ok(self.address.wrapping_add(offset))
    }
}

/// Copies that are not checked yet. [`Shaped::shape`] checks that all have one size, are inside the map and have a host
/// address, and returns their common size and alignment. The struct has only two words, so that it is passed in
/// registers.
#[derive(Clone, Copy)]
pub(crate) struct Unchecked<'a> {
    map: &'a gdrx_map,
    /// Points to the first copy. There is at least one (invariant).
    copies: *const gdrx_copy,
}

impl Shaped for Unchecked<'_> {
    #[inline(always)]
    unsafe fn shape(&self, count: usize, check: CheckFn) -> Option<Shape> {
        // SAFETY: `count` copies are readable (invariant of `Copies`), and each consists of three words.
        let copies = unsafe { slice::from_raw_parts(self.copies.cast::<[usize; 3]>(), count) };
        let size = copies[0][2];
        let last = self.map.size.checked_sub(size)?;
        // SAFETY: contract of this function.
        unsafe { Alike { copies, start: self.map.address.addr(), size, last }.shape(count, check) }
    }
}

/// Copies to or from a map. `S` finds their shape, which is the size and the alignment that they have in common. Each
/// copy is inside the map and has a host address (invariant). If `S` is [`Shape`], the copies were checked before. If
/// `S` is [`Unchecked`], `S` itself checks them before the first access.
#[derive(Clone, Copy)]
pub(crate) struct Copies<'a, S> {
    mapping_type: MappingType,
    shape: S,
    start: *mut u8,
    copies: &'a [gdrx_copy],
}

/// The largest number of copies that an array can have.
const MOST: usize = isize::MAX as usize / size_of::<gdrx_copy>();

impl<'a> Copies<'a, Unchecked<'a>> {
    /// Returns the copies. Returns `None` if the first and the last copy differ in size, or if an argument may be
    /// invalid. The caller then calls [`Copies::new`], which checks all copies and returns the error.
    ///
    /// # Safety
    /// The contract of [`Copies::new`].
    #[inline(always)]
    pub(crate) unsafe fn alike(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> Option<Self> {
        // SAFETY: contract of this function.
        let map = unsafe { map.as_ref() }?;
        let mapping_type = map.known_type()?;
        if copies.is_null() || n.wrapping_sub(1) >= MOST {
            return None;
        }
        // SAFETY: contract of this function.
        let copies = unsafe { slice::from_raw_parts(copies, n) };
        if copies[0].size != copies[n - 1].size {
            return None;
        }
        let shape = Unchecked { map, copies: copies.as_ptr() };
        Some(Copies { mapping_type, shape, start: map.address, copies })
    }
}

impl<'a> Copies<'a, Shape> {
    /// Checks copies that may differ in size, and returns them.
    ///
    /// # Safety
    /// `map` and `copies` are NULL or valid for reads while the result lives. `copies` has `n` elements.
    pub(crate) unsafe fn new(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> Result<Self> {
        // SAFETY: contract of this function.
        let map = unsafe { gdrx_map::of(map) }?;
        let mapping_type = map.mapping_type()?;
        let copies = match n {
            0 => &[],
            _ if copies.is_null() => return Err(Error::Null("copies")),
            _ if n > MOST => return Err(Error::Count(n)),
            // SAFETY: contract of this function.
            _ => unsafe { slice::from_raw_parts(copies, n) },
        };
        for (index, copy) in copies.iter().enumerate() {
            map.place(index, copy)?;
        }
        Ok(Copies { mapping_type, shape: Shape::MIXED, start: map.address, copies })
    }
}

impl<S: Shaped> Copies<'_, S> {
    /// Makes the copies, from host memory to the mapping. Returns false, and makes none, if `S` finds them invalid.
    ///
    /// # Safety
    /// The map's mapping is live, and the host addresses are readable.
    #[inline(always)]
    pub(crate) unsafe fn write(self) -> bool {
        let Copies { start, copies, .. } = self;
        let (copies, count) = (copies.as_ptr(), copies.len());
        copy::begin_batch();
        // SAFETY: the copies are inside the map, and have the size and alignment that `self.shape` finds (invariant);
        // contract of this function.
        let written = unsafe {
            copy::write_many_unfenced(self.mapping_type, self.shape, count, move |index| {
                let &gdrx_copy { offset, host, size } = &*copies.add(index);
                Item { dst: start.wrapping_add(offset), src: host.cast(), len: size }
            })
        };
        copy::end_batch();
        written
    }

    /// Makes the copies, from the mapping to host memory. Returns false, and makes none, if `S` finds them invalid.
    ///
    /// # Safety
    /// The map's mapping is live, and the host addresses are writable.
    #[inline(always)]
    pub(crate) unsafe fn read(self) -> bool {
        let Copies { start, copies, .. } = self;
        let (copies, count) = (copies.as_ptr(), copies.len());
        // SAFETY: the copies are inside the map, and have the size and alignment that `self.shape` finds (invariant);
        // contract of this function.
        unsafe {
            copy::gather(self.mapping_type, self.shape, count, move |index| {
                let &gdrx_copy { offset, host, size } = &*copies.add(index);
                Item { dst: host.cast(), src: start.wrapping_add(offset), len: size }
            })
        }
    }
}

/// The [`identity`] of this process. All copies of the library in the process compute the same number, so that each can
/// use the maps of another.
static THIS_PROCESS: PerProcess<u64> = PerProcess::new();

/// Returns the process's PID and start time in one number. The start time is needed because a forked child in another
/// PID namespace may have the same PID as its parent.
fn identity() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses, and may contain any character, so the text is split after the last
    // parenthesis. The start time is the 22nd field of the whole text, which has the index 19 after the parenthesis.
    let (_, fields) = text.rsplit_once(") ").unwrap_or_default();
    let started = fields.split(' ').nth(19).unwrap_or_default().parse::<u64>().unwrap_or_default();
    u64::from(process::id()) << 32 | u64::from(started as u32)
}

fn this_process() -> Result<u64> {
    Ok(*THIS_PROCESS.get(|_| identity())?)
}

/// Has a value in each process that has attached a map.
static HAS_ATTACHED: PerProcess<()> = PerProcess::new();

/// Returns whether this process was forked off from a process that had attached a map, and has attached none itself.
pub(crate) fn is_forked_child() -> bool {
    HAS_ATTACHED.look().is_some_and(|latest| !latest.is_own)
}

/// At the first call in the process, installs the logger that prints to stderr, and reads the environment variables.
pub(crate) fn prepare() -> Result<()> {
    if !stderr::is_installed() {
        heap::require()?;
        stderr::install();
        variables::select_routine();
    }
    Ok(())
}

const _: () = {
    assert!(size_of::<gdrx_map>() == 40 && size_of::<gdrx_copy>() == 24);
    assert!(offset_of!(gdrx_map, size) == 8 && offset_of!(gdrx_map, mapping_type) == 16);
    assert!(offset_of!(gdrx_map, process) == 24 && offset_of!(gdrx_map, several_types) == 32);
    assert!(offset_of!(gdrx_copy, host) == 8 && offset_of!(gdrx_copy, size) == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_has_the_process_and_its_start() {
        assert_eq!(identity() >> 32, u64::from(process::id()));
        assert_ne!(identity() as u32, 0);
    }
}
