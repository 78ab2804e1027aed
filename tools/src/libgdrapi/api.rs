//! The C interface of libgdrapi, with types of gdrapi.h, and a table of a library's functions.

use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};

use libloading::os::unix::Library;

/// The C type `gdr_mh_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Handle(pub(super) c_ulong);

/// The C type `gdr_info_v2_t`.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Info {
    /// Device address of the first pinned page.
    pub(crate) va: u64,
    /// The size of all pinned pages in bytes.
    pub(crate) mapped_size: u64,
    /// The size of a page in bytes.
    pub(crate) page_size: u32,
    tm_cycles: u64,
    cycles_per_ms: u32,
    /// Bit value 1 means that the pin is mapped, and bit value 2 that the mapping is write-combining.
    pub(super) flags: c_uint,
    /// Libraries before 2.4 leave 0 here.
    pub(super) mapping_type: c_uint,
}

const _: () = assert!(size_of::<Info>() == 48);

pub(super) type Gdr = *mut c_void;

/// The type of `gdr_copy_to_mapping` and `gdr_copy_from_mapping`. The arguments are handle, target, source and size.
pub(crate) type CopyFunction = unsafe extern "C" fn(Handle, *mut c_void, *const c_void, usize) -> c_int;

/// The functions of a library. Those that old releases lack are optional.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) open: unsafe extern "C" fn() -> Gdr,
    pub(super) close: unsafe extern "C" fn(Gdr) -> c_int,
    pub(super) pin: unsafe extern "C" fn(Gdr, c_ulong, usize, u64, u32, *mut Handle) -> c_int,
    pub(super) unpin: unsafe extern "C" fn(Gdr, Handle) -> c_int,
    pub(super) info: unsafe extern "C" fn(Gdr, Handle, *mut Info) -> c_int,
    pub(super) map: unsafe extern "C" fn(Gdr, Handle, *mut *mut c_void, usize) -> c_int,
    pub(super) map_v2: Option<unsafe extern "C" fn(Gdr, Handle, *mut *mut c_void, usize, c_int) -> c_int>,
    pub(super) unmap: unsafe extern "C" fn(Gdr, Handle, *mut c_void, usize) -> c_int,
    pub(super) copy_to: CopyFunction,
    pub(super) copy_from: CopyFunction,
    pub(super) library_version: Option<unsafe extern "C" fn(*mut c_int, *mut c_int)>,
    pub(super) driver_version: Option<unsafe extern "C" fn(Gdr, *mut c_int, *mut c_int) -> c_int>,
    pub(super) attribute: Option<unsafe extern "C" fn(Gdr, c_int, *mut c_int) -> c_int>,
}

impl Api {
    /// Looks up the functions of a library.
    ///
    /// # Safety
    /// The library must be a libgdrapi, and stay loaded as long as the table is used.
    pub(super) unsafe fn new(library: &Library) -> Result<Api, libloading::Error> {
        // SAFETY: the types are those of gdrapi.h. Libraries before 2.4 have no gdr_get_info_v2; its
        // predecessor fills the part of the struct before mapping_type.
        unsafe {
            let info = get(library, c"gdr_get_info_v2");
            Ok(Api {
                open: get(library, c"gdr_open")?,
                close: get(library, c"gdr_close")?,
                pin: get(library, c"gdr_pin_buffer")?,
                unpin: get(library, c"gdr_unpin_buffer")?,
                info: info.or_else(|_| get(library, c"gdr_get_info"))?,
                map: get(library, c"gdr_map")?,
                map_v2: get(library, c"gdr_map_v2").ok(),
                unmap: get(library, c"gdr_unmap")?,
                copy_to: get(library, c"gdr_copy_to_mapping")?,
                copy_from: get(library, c"gdr_copy_from_mapping")?,
                library_version: get(library, c"gdr_runtime_get_version").ok(),
                driver_version: get(library, c"gdr_driver_get_version").ok(),
                attribute: get(library, c"gdr_get_attribute").ok(),
            })
        }
    }
}

/// Returns a function of a library.
///
/// # Safety
/// `F` must be the type of a pointer to the function `name`.
unsafe fn get<F: Copy>(library: &Library, name: &CStr) -> Result<F, libloading::Error> {
    // SAFETY: `F` is the type of a pointer to that function: contract of `get`.
    unsafe { Ok(*library.get::<F>(name.to_bytes_with_nul())?) }
}
