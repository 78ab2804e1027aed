//! Calls the C API of the `libgdrapi.so.2` under test as a C program does, and returns an errno as `Err`.
//!
//! Before a call, a mark is stored in the variable for the call's result. A call that fails must leave the mark there.

use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::path::Path;

use libloading::Library as File;

type Answer<T> = Result<T, i32>;

/// The handle of a pin, as gdrapi.h declares it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(super) struct gdr_mh_t {
    pub(super) h: c_ulong,
}

/// The struct that the old function `gdr_get_info` writes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(super) struct gdr_info_v1_t {
    pub(super) va: u64,
    pub(super) mapped_size: u64,
    pub(super) page_size: u32,
    pub(super) tm_cycles: u64,
    pub(super) cycles_per_ms: u32,
    /// The bit-fields of the C struct: `mapped` is bit 0, and `wc_mapping` is bit 1.
    pub(super) bits: u32,
}

/// The struct that `gdr_get_info_v2` writes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(super) struct gdr_info_v2_t {
    pub(super) v1: gdr_info_v1_t,
    pub(super) mapping_type: u32,
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions of the library, and of gdremu, which are looked up by name.
        pub(super) struct Library {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Library {
            /// Loads gdremu's libcuda, and `libgdrapi.so.2` from the directory `$GDRAPI_LIB`. Without this variable,
            /// loads the libgdrapi that was built with this test. Both libraries stay loaded.
            pub(super) fn load() -> Library {
                let tests = std::env::current_exe().expect("a path");
                let mut path = tests.ancestors().nth(2).expect("a target directory").join("libgdrapi.so");
                if let Some(directory) = std::env::var_os("GDRAPI_LIB") {
                    path = Path::new(&directory).join("libgdrapi.so.2");
                }
                let files = [open(&path), open(Path::new("libcuda.so.1"))];
                // SAFETY: the types are those in gdrapi.h, and those of gdremu's functions for tests.
                let functions = unsafe {
                    Library { $($name: function(&files, stringify!($name)),)+ }
                };
                std::mem::forget(files);
                functions
            }
        }
    };
}

functions! {
    gdr_open: fn() -> usize;
    gdr_close: fn(usize) -> c_int;
    gdr_pin_buffer: fn(usize, c_ulong, usize, u64, u32, *mut gdr_mh_t) -> c_int;
    gdr_pin_buffer_v2: fn(usize, c_ulong, usize, u32, *mut gdr_mh_t) -> c_int;
    gdr_unpin_buffer: fn(usize, gdr_mh_t) -> c_int;
    gdr_get_callback_flag: fn(usize, gdr_mh_t, *mut c_int) -> c_int;
    gdr_get_info: fn(usize, gdr_mh_t, *mut [u8; 48]) -> c_int;
    gdr_get_info_v2: fn(usize, gdr_mh_t, *mut gdr_info_v2_t) -> c_int;
    gdr_map_v2: fn(usize, gdr_mh_t, *mut usize, usize, c_int) -> c_int;
    gdr_unmap: fn(usize, gdr_mh_t, usize, usize) -> c_int;
    gdr_copy_to_mapping: fn(gdr_mh_t, usize, *const c_void, usize) -> c_int;
    gdr_copy_from_mapping: fn(gdr_mh_t, *mut c_void, usize, usize) -> c_int;
    gdr_driver_get_version: fn(usize, *mut c_int, *mut c_int) -> c_int;
    gdr_get_attribute: fn(usize, u32, *mut c_int) -> c_int;
    gdremu_faults_set: fn(*const c_char) -> c_int;
    gdremu_pins: fn() -> c_long;
}

fn open(path: &Path) -> File {
    // SAFETY: loading a libgdrapi, or gdremu's libcuda again, has no preconditions.
    match unsafe { File::new(path) } {
        Ok(file) => file,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the function `name` of the first file that has it.
///
/// # Safety
/// `T` must be the function's type.
unsafe fn function<T: Copy>(files: &[File], name: &str) -> T {
    for file in files {
        // SAFETY: contract of this function.
        if let Ok(function) = unsafe { file.get(name) } {
            return *function;
        }
    }
    panic!("no function {name}")
}

fn mh(h: usize) -> gdr_mh_t {
    gdr_mh_t { h: h as c_ulong }
}

fn done(errno: c_int) -> Answer<()> {
    if errno == 0 { Ok(()) } else { Err(errno) }
}

/// Returns the result of a call, or the errno if it failed. A call that fails must leave `result` equal to `mark`.
fn result_of<T: PartialEq + std::fmt::Debug>(errno: c_int, result: T, mark: T) -> Answer<T> {
    if errno == 0 {
        return Ok(result);
    }
    assert_eq!(result, mark, "a failing call wrote its result");
    Err(errno)
}

const MARK: u8 = 0x5a;
const MARK_INT: c_int = 0x5a5a_5a5a;
const MARK_WORD: usize = 0x5a5a_5a5a_5a5a_5a5a;

// SAFETY of the calls below: each pointer is to a variable of the right type and size, or to a range that the caller
// passes. Any number is allowed as a handle, because the library must refuse invalid ones.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once, above")]
impl Library {
    pub(super) fn open(&self) -> usize {
        unsafe { (self.gdr_open)() }
    }

    pub(super) fn close(&self, g: usize) -> Answer<()> {
        done(unsafe { (self.gdr_close)(g) })
    }

    /// Pins by `gdr_pin_buffer` if `flags` is `None`, otherwise by `gdr_pin_buffer_v2`.
    pub(super) fn pin(&self, g: usize, address: u64, size: usize, flags: Option<u32>) -> Answer<usize> {
        let mut handle = mh(MARK_WORD);
        let errno = match flags {
            None => unsafe { (self.gdr_pin_buffer)(g, address, size, 0, 0, &mut handle) },
            Some(flags) => unsafe { (self.gdr_pin_buffer_v2)(g, address, size, flags, &mut handle) },
        };
        result_of(errno, handle.h as usize, MARK_WORD)
    }

    pub(super) fn unpin(&self, g: usize, handle: usize) -> Answer<()> {
        done(unsafe { (self.gdr_unpin_buffer)(g, mh(handle)) })
    }

    pub(super) fn callback_flag(&self, g: usize, handle: usize) -> Answer<c_int> {
        let mut flag = MARK_INT;
        let errno = unsafe { (self.gdr_get_callback_flag)(g, mh(handle), &mut flag) };
        result_of(errno, flag, MARK_INT)
    }

    /// Calls `gdr_get_info_v2`, and the old `gdr_get_info`, which has a shorter struct. Their results must agree.
    pub(super) fn info(&self, g: usize, handle: usize) -> Answer<gdr_info_v2_t> {
        let v1 = gdr_info_v1_t { va: 0, mapped_size: 0, page_size: 0, tm_cycles: 0, cycles_per_ms: 0, bits: u32::MAX };
        let mark = gdr_info_v2_t { v1, mapping_type: u32::MAX };
        let mut info = mark;
        let errno = unsafe { (self.gdr_get_info_v2)(g, mh(handle), &mut info) };
        let info = result_of(errno, info, mark);

        let mut bytes = [MARK; 48];
        let errno = unsafe { (self.gdr_get_info)(g, mh(handle), &mut bytes) };
        assert_eq!(bytes[40..], [MARK; 8], "the old gdr_get_info writes 40 bytes");
        let old = result_of(errno, bytes, [MARK; 48]);
        assert_eq!(old.err(), info.err(), "both gdr_get_info answer alike");
        if let (Ok(old), Ok(info)) = (old, info) {
            assert_eq!(old[..8], info.v1.va.to_ne_bytes(), "va");
            assert_eq!(old[8..16], info.v1.mapped_size.to_ne_bytes(), "mapped_size");
        }
        info
    }

    pub(super) fn map(&self, g: usize, handle: usize, size: usize, flags: c_int) -> Answer<usize> {
        let mut va = MARK_WORD;
        let errno = unsafe { (self.gdr_map_v2)(g, mh(handle), &mut va, size, flags) };
        result_of(errno, va, MARK_WORD)
    }

    pub(super) fn unmap(&self, g: usize, handle: usize, va: usize, size: usize) -> Answer<()> {
        done(unsafe { (self.gdr_unmap)(g, mh(handle), va, size) })
    }

    /// Copies to a mapping. `va` must be mapped for `bytes.len()` bytes, unless the library must refuse the handle.
    pub(super) fn write(&self, handle: usize, va: usize, bytes: &[u8]) -> Answer<()> {
        let source = bytes.as_ptr().cast();
        done(unsafe { (self.gdr_copy_to_mapping)(mh(handle), va, source, bytes.len()) })
    }

    /// Copies from a mapping. `va` must be mapped for `bytes.len()` bytes, unless the library must refuse the handle.
    pub(super) fn read(&self, handle: usize, va: usize, bytes: &mut [u8]) -> Answer<()> {
        let target = bytes.as_mut_ptr().cast();
        done(unsafe { (self.gdr_copy_from_mapping)(mh(handle), target, va, bytes.len()) })
    }

    pub(super) fn version(&self, g: usize) -> Answer<(c_int, c_int)> {
        let mut major = MARK_INT;
        let mut minor = MARK_INT;
        let errno = unsafe { (self.gdr_driver_get_version)(g, &mut major, &mut minor) };
        result_of(errno, (major, minor), (MARK_INT, MARK_INT))
    }

    /// Unlike the other functions, gdr_get_attribute writes 0 if it fails.
    pub(super) fn attribute(&self, g: usize, attribute: u32) -> Answer<c_int> {
        let mut value = MARK_INT;
        let errno = unsafe { (self.gdr_get_attribute)(g, attribute, &mut value) };
        result_of(errno, value, 0)
    }

    /// Makes calls of the emulated driver fail, as gdremu's option `--fault` does. With an empty list, none fails.
    pub(super) fn set_faults(&self, faults: &str) {
        let text = CString::new(faults).expect("no NUL");
        assert_eq!(unsafe { (self.gdremu_faults_set)(text.as_ptr()) }, 0, "{faults}");
    }

    /// Returns the number of this process's pins that still hold memory.
    pub(super) fn pins(&self) -> i64 {
        unsafe { (self.gdremu_pins)() }
    }
}
