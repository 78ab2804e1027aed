//! Mappings as callers describe them, and copies.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::sync::atomic::AtomicBool;
use std::{fs, process, slice};

use gdrcopy_core::copy::mixed;
use gdrcopy_core::routines::Item;
use gdrcopy_core::sys::fork::{self, PerProcess};
use gdrcopy_core::types::{MappingType, raw};
use gdrcopy_core::{memory, stderr, variables};

use crate::error::{Error, Result};

/// A mapping, or a part of one.
#[derive(Debug)]
#[repr(C)]
pub struct gdrx_map {
    address: *mut u8,
    size: usize,
    mapping_type: u32,
    reserved: u32,
    /// [`identity`] of the process that it is of.
    process: u64,
    several_types: *const AtomicBool,
}

/// One copy.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct gdrx_copy {
    /// In the map.
    pub offset: usize,
    /// Where its bytes are read from or written to.
    pub host: *mut c_void,
    /// Bytes.
    pub size: usize,
}

impl gdrx_map {
    /// Describes `size` bytes from `address` on, of a mapping of this type and size.
    pub(crate) fn attach(mapping_type: u32, mapped_size: u64, address: *mut c_void, size: usize) -> Result<gdrx_map> {
        prepare()?;
        let kind = raw::mapping_type(mapping_type).ok_or(Error::NotMapped { mapping_type })?;
        if address.is_null() {
            return Err(Error::Null("address"));
        }
        if size == 0 || size as u64 > mapped_size {
            return Err(Error::Size { size, mapped_size });
        }
        fork::enter()?;
        Ok(gdrx_map {
            address: address.cast(),
            size,
            mapping_type,
            reserved: 0,
            process: this_process(),
            several_types: mixed::attach(kind),
        })
    }

    /// # Safety
    /// It is NULL, or valid for reads while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(map: *const gdrx_map) -> Result<&'a gdrx_map> {
        // SAFETY: contract of this function.
        unsafe { map.as_ref() }.ok_or(Error::Null("map"))
    }

    /// The mapping's type, if this process has attached it.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Result<MappingType> {
        let kind = raw::mapping_type(self.mapping_type).ok_or(Error::NotAttached)?;
        if Some(&self.process) == THIS_PROCESS.current() || self.process == this_process() {
            return Ok(kind);
        }
        Err(gdrcopy_core::Error::ForkedChild.into())
    }

    /// CPU address of byte 0.
    pub(crate) fn start(&self) -> *mut u8 {
        self.address
    }

    /// CPU address of the copy with this number, which is inside.
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

/// Copies through a map. All are inside, and their host addresses are not NULL unless they have no bytes
/// (invariant).
#[derive(Clone, Copy)]
pub(crate) struct Copies<'a> {
    pub(crate) kind: MappingType,
    start: *mut u8,
    copies: &'a [gdrx_copy],
}

impl<'a> Copies<'a> {
    /// # Safety
    /// Both are NULL or valid for reads, `copies` of `n`, while the result lives.
    #[inline(always)]
    pub(crate) unsafe fn new(map: *const gdrx_map, copies: *const gdrx_copy, n: usize) -> Result<Copies<'a>> {
        // SAFETY: contract of this function.
        let map = unsafe { gdrx_map::of(map) }?;
        let kind = map.kind()?;
        let copies = match n {
            0 => &[],
            _ if copies.is_null() => return Err(Error::Null("copies")),
            _ if n > isize::MAX as usize / size_of::<gdrx_copy>() => return Err(Error::Count(n)),
            // SAFETY: contract of this function.
            _ => unsafe { slice::from_raw_parts(copies, n) },
        };
        for (index, copy) in copies.iter().enumerate() {
            map.place(index, copy)?;
        }
        Ok(Copies { kind, start: map.address, copies })
    }

    /// The copies, from the host.
    pub(crate) fn writes(self) -> impl Iterator<Item = Item> {
        self.copies.iter().map(move |&gdrx_copy { offset, host, size }| Item {
            dst: self.start.wrapping_add(offset),
            src: host.cast(),
            len: size,
        })
    }

    /// A copy, to the host.
    #[inline(always)]
    pub(crate) fn read(self, index: usize) -> Item {
        let gdrx_copy { offset, host, size } = self.copies[index];
        Item { dst: host.cast(), src: self.start.wrapping_add(offset), len: size }
    }
}

/// A number of this process that each copy of the library in it computes, so that one uses the maps of another.
static THIS_PROCESS: PerProcess<u64> = PerProcess::new();

/// The process's number and the time when it started. A child may have its parent's number, in a namespace of its own.
fn identity() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, in parentheses, is any name. The time is the 22nd.
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let started = fields.split(' ').nth(19).unwrap_or_default().parse::<u32>().unwrap_or_default();
    u64::from(process::id()) << 32 | u64::from(started)
}

#[cold]
fn this_process() -> u64 {
    *THIS_PROCESS.get(|_| identity())
}

/// Reads the environment variables, at the first call of the process.
pub(crate) fn prepare() -> Result<()> {
    if !stderr::is_installed() {
        memory::require()?;
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
