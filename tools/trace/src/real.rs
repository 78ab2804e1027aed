//! The real library, and its functions by their C types.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use gdrcopy_trace_tables::{FUNCTIONS, Function};

use crate::process;

static ADDRESSES: [AtomicPtr<c_void>; FUNCTIONS.len()] = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS.len()];

static LOADED: AtomicBool = AtomicBool::new(false);

/// The function's address in the real library; NULL if that has none, or cannot be loaded.
#[inline(always)]
fn address(function: Function) -> *mut c_void {
    let address = ADDRESSES[function as usize].load(Acquire);
    if address.is_null() { load(function) } else { address }
}

/// Loads the library, if not done. Threads may do it at once, as the loader gives all the same.
#[cold]
fn load(function: Function) -> *mut c_void {
    if !LOADED.load(Acquire) {
        process::keep_errno(|| {
            let Some(settings) = process::settings() else {
                return;
            };
            // SAFETY: `gdrcopy trace` found a libgdrapi in this file. By path, as its SONAME is this object's.
            let library = unsafe { libc::dlopen(settings.library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            for (name, address) in FUNCTIONS.iter().zip(&ADDRESSES) {
                let name = CString::new(*name).unwrap_or_default();
                if !library.is_null() {
                    // SAFETY: the library is loaded, and stays so.
                    address.store(unsafe { libc::dlsym(library, name.as_ptr()) }, Release);
                }
            }
            LOADED.store(true, Release);
            if library.is_null()
                && let Some(tables) = process::tables()
            {
                tables.process.unloadable.store(1, Relaxed);
            }
            let (mut major, mut minor) = (0, 0);
            if let Some(version) = runtime_get_version() {
                // SAFETY: both are local variables.
                unsafe { version(&mut major, &mut minor) };
                process::set_version(major, minor);
            }
            // The program gets no error of dlsym.
            // SAFETY: no requirements.
            unsafe { libc::dlerror() };
        });
    }
    ADDRESSES[function as usize].load(Acquire)
}

/// `gdr_t`.
pub(crate) type Gdr = *mut c_void;
/// `gdr_mh_t`, which is passed as its only member is.
pub(crate) type Handle = c_ulong;

macro_rules! functions {
    ($($name:ident: $function:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {$(
        /// The real library's function of this name.
        #[inline(always)]
        pub(crate) fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?> {
            // SAFETY: NULL, which is None, or the address of the function of this type in gdrapi.h.
            unsafe { std::mem::transmute(address(Function::$function)) }
        }
    )*};
}

functions! {
    open: Open() -> Gdr;
    close: Close(Gdr) -> c_int;
    pin_buffer: PinBuffer(Gdr, c_ulong, usize, u64, u32, *mut Handle) -> c_int;
    pin_buffer_v2: PinBufferV2(Gdr, c_ulong, usize, u32, *mut Handle) -> c_int;
    unpin_buffer: UnpinBuffer(Gdr, Handle) -> c_int;
    get_callback_flag: GetCallbackFlag(Gdr, Handle, *mut c_int) -> c_int;
    get_info: GetInfo(Gdr, Handle, *mut c_void) -> c_int;
    get_info_v2: GetInfoV2(Gdr, Handle, *mut c_void) -> c_int;
    map: Map(Gdr, Handle, *mut *mut c_void, usize) -> c_int;
    map_v2: MapV2(Gdr, Handle, *mut *mut c_void, usize, c_int) -> c_int;
    unmap: Unmap(Gdr, Handle, *mut c_void, usize) -> c_int;
    copy_to_mapping: CopyToMapping(Handle, *mut c_void, *const c_void, usize) -> c_int;
    copy_from_mapping: CopyFromMapping(Handle, *mut c_void, *const c_void, usize) -> c_int;
    runtime_get_version: RuntimeGetVersion(*mut c_int, *mut c_int);
    driver_get_version: DriverGetVersion(Gdr, *mut c_int, *mut c_int) -> c_int;
    get_attribute: GetAttribute(Gdr, c_uint, *mut c_int) -> c_int;
    get_mapping_type_string: GetMappingTypeString(c_uint, *mut *const c_char) -> c_int;
}
