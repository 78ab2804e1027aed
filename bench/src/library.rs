//! libgdrapi files, several in one process.
//!
//! The loader takes two files for one object if they are the same inode, and by SONAME if they are
//! named without a folder. So each is loaded by its full path, and a file that was loaded before as a
//! copy of its own.

use std::collections::HashSet;
use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, bail, ensure};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tempfile::TempPath;

use crate::cuda::DeviceBuffer;

/// `gdr_mh_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Handle(c_ulong);

/// `gdr_info_v2_t`.
#[derive(Debug, Default)]
#[repr(C)]
struct Info {
    va: u64,
    mapped_size: u64,
    page_size: u32,
    tm_cycles: u64,
    cycles_per_ms: u32,
    flags: c_uint,
    mapping_type: c_uint,
}

const _: () = assert!(size_of::<Info>() == 48);

type Gdr = *mut c_void;

/// `gdr_copy_to_mapping`: handle, mapping, host memory, bytes.
pub(crate) type CopyTo = unsafe extern "C" fn(Handle, *mut c_void, *const c_void, usize) -> c_int;
/// `gdr_copy_from_mapping`: handle, host memory, mapping, bytes.
pub(crate) type CopyFrom = unsafe extern "C" fn(Handle, *mut c_void, *const c_void, usize) -> c_int;

#[derive(Debug)]
struct Api {
    open: unsafe extern "C" fn() -> Gdr,
    close: unsafe extern "C" fn(Gdr) -> c_int,
    pin: unsafe extern "C" fn(Gdr, c_ulong, usize, u64, u32, *mut Handle) -> c_int,
    unpin: unsafe extern "C" fn(Gdr, Handle) -> c_int,
    info: unsafe extern "C" fn(Gdr, Handle, *mut Info) -> c_int,
    map: unsafe extern "C" fn(Gdr, Handle, *mut *mut c_void, usize) -> c_int,
    unmap: unsafe extern "C" fn(Gdr, Handle, *mut c_void, usize) -> c_int,
    copy_to: CopyTo,
    copy_from: CopyFrom,
}

/// Loads libraries, each as an object of its own.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    files: HashSet<(u64, u64)>,
    objects: HashSet<usize>,
}

/// A library that was loaded, and the file it came from if that is a copy.
#[derive(Debug)]
pub(crate) struct Loaded {
    api: Api,
    _library: Library,
    _copy: Option<TempPath>,
}

impl Loader {
    /// Loads the library in this file.
    pub(crate) fn load(&mut self, file: &Path) -> Result<Loaded> {
        let context = || format!("{}", file.display());
        let file = file.canonicalize().with_context(context)?;
        let metadata = fs::metadata(&file).with_context(context)?;
        let is_new = self.files.insert((metadata.dev(), metadata.ino()));
        let copy = if is_new { None } else { Some(copy_of(&file)?) };
        let path = copy.as_deref().unwrap_or(&file);

        // SAFETY: the file is a libgdrapi, says the user; loading one runs no code that matters here.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.with_context(context)?;
        // SAFETY: the types are those of libgdrapi's functions.
        let api = unsafe {
            Api {
                open: *library.get(b"gdr_open\0")?,
                close: *library.get(b"gdr_close\0")?,
                pin: *library.get(b"gdr_pin_buffer\0")?,
                unpin: *library.get(b"gdr_unpin_buffer\0")?,
                info: *library.get(b"gdr_get_info_v2\0")?,
                map: *library.get(b"gdr_map\0")?,
                unmap: *library.get(b"gdr_unmap\0")?,
                copy_to: *library.get(b"gdr_copy_to_mapping\0")?,
                copy_from: *library.get(b"gdr_copy_from_mapping\0")?,
            }
        };
        ensure!(
            self.objects.insert(api.copy_from as usize),
            "{}: the loader took it for a library that was loaded before",
            path.display()
        );
        Ok(Loaded {
            api,
            _library: library,
            _copy: copy,
        })
    }
}

fn copy_of(file: &Path) -> Result<TempPath> {
    let copy = tempfile::Builder::new()
        .prefix("libgdrapi-")
        .tempfile()?
        .into_temp_path();
    fs::copy(file, &copy).with_context(|| format!("copying {}", file.display()))?;
    Ok(copy)
}

/// A device buffer that a library has pinned and mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    g: Gdr,
    handle: Handle,
    va: *mut u8,
    len: usize,
    mapping_type: c_uint,
    library: Loaded,
}

impl Mapped {
    /// Has the library pin and map the buffer, which must outlive it.
    pub(crate) fn new(library: Loaded, buffer: &DeviceBuffer) -> Result<Mapped> {
        let (api, len) = (&library.api, buffer.len());
        let (mut handle, mut va, mut info) = (Handle(0), ptr::null_mut(), Info::default());
        // SAFETY: the arguments are as gdrapi.h wants them; what is written to lives here.
        let (g, answers) = unsafe {
            let g = (api.open)();
            if g.is_null() {
                bail!("gdr_open failed; GDRCOPY_ENABLE_LOGGING=1 says why");
            }
            let address = buffer.address() as c_ulong;
            let pinned = (api.pin)(g, address, len, 0, 0, &mut handle);
            let mapped = (api.map)(g, handle, &mut va, len);
            let told = (api.info)(g, handle, &mut info);
            (
                g,
                [
                    ("gdr_pin_buffer", pinned),
                    ("gdr_map", mapped),
                    ("gdr_get_info", told),
                ],
            )
        };
        for (call, errno) in answers {
            ensure!(errno == 0, "{call}: {}", nix::errno::Errno::from_raw(errno));
        }
        ensure!(
            info.va == buffer.address(),
            "the mapping starts at {:#x}, not at the buffer's {:#x}",
            info.va,
            buffer.address()
        );
        Ok(Mapped {
            g,
            handle,
            va: va.cast(),
            len,
            mapping_type: info.mapping_type,
            library,
        })
    }

    pub(crate) fn copy_to(&self) -> CopyTo {
        self.library.api.copy_to
    }

    pub(crate) fn copy_from(&self) -> CopyFrom {
        self.library.api.copy_from
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Where the byte at this offset of the buffer is mapped.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        self.va.wrapping_add(offset)
    }

    /// The type of the mapping, as users of the library know it.
    pub(crate) fn mapping_type(&self) -> &'static str {
        match self.mapping_type {
            1 => "write-combining",
            2 => "cached",
            3 => "device",
            _ => "unknown",
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let api = &self.library.api;
        // SAFETY: what `new` made, taken back in the opposite order.
        unsafe {
            (api.unmap)(self.g, self.handle, self.va.cast(), self.len);
            (api.unpin)(self.g, self.handle);
            (api.close)(self.g);
        }
    }
}
