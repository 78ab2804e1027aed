//! The CUDA driver, loaded when something needs it and never before.
//!
//! `host` has host memory that CUDA knows, `memory` GPU memory, `stream` the copy engine, `context` what is current in
//! a thread; `capture` keeps all of it out of the graphs that the program captures.
//!
//! Result codes stay plain integers: a driver newer than this library may answer with any number. The
//! library stays loaded once it is: others in the process use it too. No state here is locked while it
//! is made, so that a child forked in the middle finds none that would make it wait.

mod capture;
pub(crate) mod context;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod stream;

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;
use once_cell::race::OnceBox;

use crate::error::{CudaError, CudaVersion, Error, Result};

/// Attributes of a device.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum DeviceAttribute {
    /// The CPU and the GPU share page tables: a coherent platform.
    HostPageTables = 100,
    /// Memory can be allocated and freed in the order of a stream. Not on GPUs in TCC mode.
    MemoryPools = 115,
    /// Memory can be exported as a dma-buf.
    DmaBuf = 124,
    /// Such a dma-buf can be mapped.
    DmaBufMmap = 152,
}

/// A CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(c_int);

impl Device {
    /// CUDA's number of it, as `CUDA_VISIBLE_DEVICES` leaves them.
    pub(crate) fn ordinal(self) -> i32 {
        self.0
    }
}

const NOT_INITIALIZED: c_uint = 3;
/// What every version from this one on has, 1000 × major + 10 × minor.
pub(crate) const OLDEST: i32 = 11000;
const HANDLE_TYPE_DMA_BUF_FD: c_int = 1;
const RANGE_FLAG_PCIE: c_ulonglong = 1;

/// The first CUDA version that exports dma-bufs: 11.7.
pub(crate) const EXPORTS_DMA_BUFS: i32 = 11070;

type Context = *mut c_void;

/// Attributes of an address that are integers or addresses.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum PointerAttribute {
    Context = 1,
    MemoryType = 2,
    HostPointer = 4,
    BufferId = 7,
    IsManaged = 8,
    DeviceOrdinal = 9,
    RangeStart = 11,
    RangeSize = 12,
}

macro_rules! functions {
    (
        $($name:ident = $symbol:literal: fn($($argument:ty),*);)+
        [newer than OLDEST] $($newer:ident = $newer_symbol:literal: fn($($newer_argument:ty),*);)+
    ) => {
        /// The functions in use. All return a CUresult.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
            $($newer: Result<unsafe extern "C" fn($($newer_argument),*) -> c_uint>,)+
            /// Whether cuInit has succeeded.
            is_initialized: AtomicBool,
        }

        impl Driver {
            fn from_library(library: &Library) -> Result<Driver> {
                Ok(Driver {
                    $($name: {
                        // SAFETY: the driver API gives the symbol this type.
                        let symbol = unsafe { library.get($symbol) };
                        *symbol.map_err(|_| Error::NoCudaFunction($symbol))?
                    },)+
                    $($newer: {
                        // SAFETY: as above.
                        let symbol = unsafe { library.get($newer_symbol) };
                        symbol.map(|symbol| *symbol).map_err(|_| Error::NoCudaFunction($newer_symbol))
                    },)+
                    is_initialized: AtomicBool::new(false),
                })
            }
        }
    };
}

functions! {
    error_name = "cuGetErrorName": fn(c_uint, *mut *const c_char);
    init = "cuInit": fn(c_uint);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device = "cuDeviceGet": fn(*mut c_int, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    pointer_attribute = "cuPointerGetAttribute": fn(*mut c_void, c_int, c_ulonglong);
    context = "cuCtxGetCurrent": fn(*mut Context);
    set_context = "cuCtxSetCurrent": fn(Context);
    context_device = "cuCtxGetDevice": fn(*mut c_int);
    retain_context = "cuDevicePrimaryCtxRetain": fn(*mut Context, c_int);
    release_context = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    alloc = "cuMemAlloc_v2": fn(*mut c_ulonglong, usize);
    free = "cuMemFree_v2": fn(c_ulonglong);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    host_register = "cuMemHostRegister_v2": fn(*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister": fn(*mut c_void);
    host_device_pointer = "cuMemHostGetDevicePointer_v2": fn(*mut c_ulonglong, *mut c_void, c_uint);
    stream_create = "cuStreamCreate": fn(*mut *mut c_void, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(*mut c_void);
    stream_query = "cuStreamQuery": fn(*mut c_void);
    copy_to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, c_ulonglong, usize, *mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2": fn(c_ulonglong, *const c_void, usize, *mut c_void);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_uint);
    [newer than OLDEST]
    export = "cuMemGetHandleForAddressRange": fn(*mut c_void, c_ulonglong, usize, c_int, c_ulonglong);
    free_async = "cuMemFreeAsync": fn(c_ulonglong, *mut c_void);
}

/// A loaded CUDA driver, or why it cannot be used.
struct Loaded {
    version: i32,
    driver: Result<Driver>,
}

/// The CUDA driver once it is loaded.
static LOADED: OnceBox<Result<Loaded>> = OnceBox::new();

/// The CUDA driver, loaded now if need be, if it is of this version or later (1000 × major + 10 × minor).
/// Only its version is asked for, which needs no cuInit.
pub(crate) fn load(needed: i32) -> Result<&'static Driver> {
    let loaded = match LOADED.get() {
        Some(loaded) => loaded,
        None => {
            let library = open_library().ok_or(Error::NoCuda)?;
            // Two threads may come here at once: both load the same library, and one result is kept.
            LOADED.get_or_init(|| Box::new(use_library(&library)))
        }
    };
    let Loaded { version, driver } = loaded.as_ref().map_err(|error| *error)?;
    if *version < needed {
        let version = *version;
        return Err(Error::CudaTooOld { version, needed });
    }
    driver.as_ref().map_err(|error| *error)
}

/// Loads the library, which then stays loaded.
fn open_library() -> Option<ManuallyDrop<Library>> {
    // The name with the version is the driver's own; the other one comes with the toolkit.
    let mut names = ["libcuda.so.1", "libcuda.so"].into_iter();
    names.find_map(|name| {
        // SAFETY: loading the CUDA driver has no preconditions.
        let library = unsafe { Library::new(name) };
        let library = library.inspect_err(|error| {
            let reason = error.source().map(ToString::to_string);
            log::debug!("{name}: {}", reason.unwrap_or_else(|| error.to_string()));
        });
        library.map(ManuallyDrop::new).ok()
    })
}

fn use_library(library: &Library) -> Result<Loaded> {
    let version = version(library)?;
    log::debug!("CUDA {}", CudaVersion(version));
    let driver = Driver::from_library(library);
    Ok(Loaded { version, driver })
}

fn version(library: &Library) -> Result<i32> {
    const NAME: &str = "cuDriverGetVersion";
    let mut version = 0;
    // SAFETY: the driver API gives the symbol this type; the output is a local variable.
    unsafe {
        let function = library.get::<unsafe extern "C" fn(*mut c_int) -> c_uint>(NAME);
        let function = function.map_err(|_| Error::NoCudaFunction(NAME))?;
        match function(&mut version) {
            0 => Ok(version),
            code => {
                let error = CudaError { code, name: None };
                Err(Error::Cuda { call: NAME, error })
            }
        }
    }
}

impl Driver {
    fn check(&self, call: &'static str, result: c_uint) -> Result<()> {
        match result {
            0 => Ok(()),
            code => {
                let name = self.error_name(code);
                let error = CudaError { code, name };
                Err(Error::Cuda { call, error })
            }
        }
    }

    /// Initializes CUDA in this process, unless that was done before.
    pub(crate) fn init(&self) -> Result<()> {
        if !self.is_initialized.load(Ordering::Relaxed) {
            // SAFETY: cuInit takes flags, of which there are none.
            self.check("cuInit", unsafe { (self.init)(0) })?;
            self.is_initialized.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The number of GPUs, if the process has initialized CUDA; does not initialize it.
    pub(crate) fn device_count_if_initialized(&self) -> Result<Option<i32>> {
        let mut count = 0;
        // SAFETY: the output is a local variable.
        match unsafe { (self.device_count)(&mut count) } {
            NOT_INITIALIZED => Ok(None),
            result => self.check("cuDeviceGetCount", result).map(|()| Some(count)),
        }
    }

    /// The GPU with this number.
    pub(crate) fn device(&self, ordinal: i32) -> Result<Device> {
        let mut device = 0;
        // SAFETY: the output is a local variable.
        self.check("cuDeviceGet", unsafe {
            (self.device)(&mut device, ordinal)
        })?;
        Ok(Device(device))
    }

    /// The device whose memory is at this address.
    pub(crate) fn device_of(&self, address: u64) -> Result<Device> {
        let ordinal = self.pointer_attribute(PointerAttribute::DeviceOrdinal, address)?;
        self.device(ordinal as i32)
    }

    /// An attribute of the memory at an address that CUDA knows.
    fn pointer_attribute(&self, attribute: PointerAttribute, address: u64) -> Result<u64> {
        let mut value = 0_u64;
        let place = ptr::from_mut(&mut value).cast();
        // SAFETY: the attributes are of at most 8 bytes, and the output is a local variable.
        let result = unsafe { (self.pointer_attribute)(place, attribute as c_int, address) };
        self.check("cuPointerGetAttribute", result)?;
        // Shorter ones fill the low bytes: CUDA exists for little-endian CPUs only.
        Ok(value)
    }

    /// CUDA's number of the allocation at this address. It is never used again, unlike the address.
    pub(crate) fn buffer_id(&self, address: u64) -> Result<u64> {
        self.pointer_attribute(PointerAttribute::BufferId, address)
    }

    /// An attribute of a device, or `None` if the driver does not know it.
    pub(crate) fn attribute(&self, device: Device, attribute: DeviceAttribute) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the output is a local variable.
        let result = unsafe { (self.device_attribute)(&mut value, attribute as c_int, device.0) };
        (result == 0).then_some(value)
    }

    /// A dma-buf of `len` bytes of the device's memory from `address` on, both multiples of the host's page size.
    pub(crate) fn export(
        &self,
        device: Device,
        address: u64,
        len: usize,
        over_pcie: bool,
    ) -> Result<OwnedFd> {
        let flags = if over_pcie { RANGE_FLAG_PCIE } else { 0 };
        let export = self.export?;
        self.in_context(device, address, || {
            let mut fd: c_int = -1;
            let place = ptr::from_mut(&mut fd).cast();
            // SAFETY: the handle is an int; the range is only looked up.
            self.check("cuMemGetHandleForAddressRange", unsafe {
                export(place, address, len, HANDLE_TYPE_DMA_BUF_FD, flags)
            })?;
            // SAFETY: the descriptor is new and ours.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })
    }

    fn error_name(&self, code: c_uint) -> Option<&'static CStr> {
        let mut name = ptr::null();
        // SAFETY: the output is a local variable; names are constants of the driver, which stays loaded.
        unsafe {
            ((self.error_name)(code, &mut name) == 0 && !name.is_null())
                .then(|| CStr::from_ptr(name))
        }
    }
}
