//! An open `gdr_t`, whose methods are the library's calls, and a buffer that a library has pinned and mapped.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use nix::errno::Errno;
use serde::Serialize;

use super::api::{CopyFunction, Gdr, Handle, Info};
use super::loader::Library;
use crate::cuda::DeviceBuffer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MappingType {
    /// The platform's default
    Default,
    /// Write-combining
    Wc,
    Cache,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub(crate) struct CallError {
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

fn check(call: &'static str, result: c_int) -> Result<(), CallError> {
    if result == 0 {
        return Ok(());
    }
    let errno = Errno::from_raw(result);
    Err(CallError { call, errno })
}

/// An open `gdr_t`. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    library: &'static Library,
    g: Gdr,
}

impl Connection {
    pub(crate) fn open(library: &'static Library) -> Result<Connection> {
        // SAFETY: the function has no arguments.
        let g = unsafe { (library.api.open)() };
        if g.is_null() {
            let errno = Errno::last();
            bail!(
                "gdr_open failed ({errno}); GDRCOPY_ENABLE_LOGGING=1 logs the reason; run `gdrcopy doctor` for advice"
            );
        }
        Ok(Connection { library, g })
    }

    #[inline]
    pub(crate) fn pin(&self, address: u64, len: usize) -> Result<Handle, CallError> {
        let mut handle = Handle(0);
        // SAFETY: the connection is open, and the handle a local variable.
        let result = unsafe { (self.library.api.pin)(self.g, address as c_ulong, len, 0, 0, &mut handle) };
        check("gdr_pin_buffer", result)?;
        Ok(handle)
    }

    #[inline]
    pub(crate) fn unpin(&self, handle: Handle) -> Result<(), CallError> {
        // SAFETY: the connection is open. Callers do not use mappings of the pin afterwards.
        let result = unsafe { (self.library.api.unpin)(self.g, handle) };
        check("gdr_unpin_buffer", result)
    }

    /// Calls `gdr_get_info_v2`, or `gdr_get_info` of libraries that lack it.
    #[inline]
    pub(crate) fn info(&self, handle: Handle) -> Result<Info, CallError> {
        let mut info = Info::default();
        // SAFETY: the connection is open, and `info` is a local variable.
        let result = unsafe { (self.library.api.info)(self.g, handle, &mut info) };
        check("gdr_get_info", result)?;
        Ok(info)
    }

    /// Calls `gdr_map`, or `gdr_map_v2` for a mapping type that is not the default.
    #[inline]
    pub(crate) fn map(&self, handle: Handle, len: usize, mapping_type: MappingType) -> Result<*mut u8, CallError> {
        let mut va = ptr::null_mut();
        let api = &self.library.api;
        match (mapping_type, api.map_v2) {
            // SAFETY: the connection is open, and the call stores the address into a local variable.
            (MappingType::Default, _) => check("gdr_map", unsafe { (api.map)(self.g, handle, &mut va, len) }),
            (_, None) => check("gdr_map_v2", Errno::ENOSYS as c_int),
            // SAFETY: the connection is open, and the call stores the address into a local variable.
            (flags, Some(map)) => check("gdr_map_v2", unsafe { map(self.g, handle, &mut va, len, flags as c_int) }),
        }?;
        Ok(va.cast())
    }

    #[inline]
    pub(crate) fn unmap(&self, handle: Handle, va: *mut u8, len: usize) -> Result<(), CallError> {
        // SAFETY: the connection is open. Callers do not use the mapping afterwards.
        let result = unsafe { (self.library.api.unmap)(self.g, handle, va.cast(), len) };
        check("gdr_unmap", result)
    }

    fn pin_and_map(
        &self,
        buffer: &DeviceBuffer,
        mapping_type: MappingType,
        before: &mut impl FnMut(&'static str) -> Result<()>,
    ) -> Result<(Handle, *mut u8, Info)> {
        let (address, len) = (buffer.address(), buffer.len());
        before("gdr_pin_buffer")?;
        let handle = self.pin(address, len)?;
        before("gdr_map")?;
        let va = self.map(handle, len, mapping_type)?;
        before("gdr_get_info")?;
        let info = self.info(handle)?;
        let start = info.va;
        ensure!(start == address, "the mapping starts at {start:#x}, not at the buffer's {address:#x}");
        Ok((handle, va, info))
    }

    /// Calls `gdr_driver_get_version`. Returns `None` if the library does not have the function, or if the call fails.
    pub(crate) fn driver_version(&self) -> Option<(c_int, c_int)> {
        let version = self.library.api.driver_version?;
        let mut major = 0;
        let mut minor = 0;
        // SAFETY: the connection is open, and `major` and `minor` are local variables.
        let result = unsafe { version(self.g, &mut major, &mut minor) };
        if result == 0 { Some((major, minor)) } else { None }
    }

    /// Calls `gdr_get_attribute`. Returns `None` if the library does not have the function, or if the call fails.
    pub(crate) fn attribute(&self, attribute: c_int) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: the connection is open, and the value a local variable.
        let result = unsafe { (self.library.api.attribute?)(self.g, attribute, &mut value) };
        if result == 0 { Some(value) } else { None }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the connection is open, and not used again.
        unsafe { (self.library.api.close)(self.g) };
    }
}

/// A GPU buffer that a library has pinned and mapped. Dropping it closes the connection, which unmaps and unpins the
/// buffer.
#[derive(Debug)]
pub(crate) struct Mapped {
    connection: Connection,
    handle: Handle,
    va: *mut u8,
    len: usize,
    /// The library's description of the pin.
    pub(crate) info: Info,
}

impl Mapped {
    /// Pins and maps the buffer, which must outlive the result.
    pub(crate) fn new(library: &'static Library, buffer: &DeviceBuffer, mapping_type: MappingType) -> Result<Mapped> {
        Mapped::step_by_step(library, buffer, mapping_type, |_| Ok(()))
    }

    /// Does what [`Mapped::new`] does, and calls `before` with each library function's name before the call.
    pub(crate) fn step_by_step(
        library: &'static Library,
        buffer: &DeviceBuffer,
        mapping_type: MappingType,
        mut before: impl FnMut(&'static str) -> Result<()>,
    ) -> Result<Mapped> {
        before("gdr_open")?;
        let connection = Connection::open(library)?;
        match connection.pin_and_map(buffer, mapping_type, &mut before) {
            Ok((handle, va, info)) => Ok(Mapped { connection, handle, va, len: buffer.len(), info }),
            Err(error) => {
                // Closing the connection undoes the steps before the one that failed.
                before("gdr_close")?;
                Err(error)
            }
        }
    }

    /// Unmaps and unpins the buffer, and closes the connection. Calls `before` with the name of each call before making
    /// it. After an error, it makes no further calls.
    pub(crate) fn close(self, mut before: impl FnMut(&'static str) -> Result<()>) -> Result<()> {
        let connection = ManuallyDrop::new(self.connection);
        before("gdr_unmap")?;
        connection.unmap(self.handle, self.va, self.len)?;
        before("gdr_unpin_buffer")?;
        connection.unpin(self.handle)?;
        before("gdr_close")?;
        // SAFETY: the connection is open, and neither used nor dropped afterwards.
        Ok(check("gdr_close", unsafe { (connection.library.api.close)(connection.g) })?)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn copy_to(&self) -> CopyFunction {
        self.connection.library.api.copy_to
    }

    pub(crate) fn copy_from(&self) -> CopyFunction {
        self.connection.library.api.copy_from
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address at which this offset of the buffer is mapped.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        self.va.wrapping_add(offset)
    }

    /// The name of the mapping's type.
    pub(crate) fn mapping_type(&self) -> &'static str {
        match self.info.mapping_type {
            1 => "write-combining",
            2 => "cached",
            3 => "device",
            _ if self.info.flags & 2 != 0 => "write-combining",
            _ => "unknown",
        }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), CallError> {
        let to = self.range(at, bytes.len());
        // SAFETY: the range is mapped, and the slice readable.
        let result = unsafe { (self.copy_to())(self.handle, to.cast::<c_void>(), bytes.as_ptr().cast(), bytes.len()) };
        check("gdr_copy_to_mapping", result)
    }

    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), CallError> {
        let from = self.range(at, bytes.len());
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: the range is mapped, and the slice writable.
        let result = unsafe { (self.copy_from())(self.handle, to, from.cast(), bytes.len()) };
        check("gdr_copy_from_mapping", result)
    }

    fn range(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at + len <= self.len);
        self.va.wrapping_add(at)
    }
}
