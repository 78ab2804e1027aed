//! The CUDA driver, loaded when something needs it and never before.
//!
//! `allocation` allocates, looks up and exports memory; `context` finds and sets the thread's current context.
//!
//! Result codes stay plain integers, because a driver newer than this library may answer with any number. libcuda is
//! never unloaded, because other code in the process uses it. This module initializes its static variables without a
//! lock. So a forked child never waits for a lock that another thread held at the fork.

pub mod allocation;
pub mod context;

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::{ManuallyDrop, transmute};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libloading::Library;
use once_cell::race::OnceBox;

use crate::error::{CudaError, Error, Result};
use crate::types::Version;

/// Attributes of a device.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum DeviceAttribute {
    /// The CPU and the GPU share page tables, as on a coherent platform.
    HostPageTables = 100,
    /// Memory can be allocated and freed in the order of a stream. Not every GPU can do that.
    MemoryPools = 115,
    /// Memory can be exported as a dma-buf.
    DmaBuf = 124,
    /// A dma-buf of the device's memory can be mapped by the CPU.
    DmaBufMmap = 152,
}

/// A CUDA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device(c_int);

impl Device {
    /// CUDA's number of the GPU among those that `CUDA_VISIBLE_DEVICES` shows.
    pub fn ordinal(self) -> i32 {
        self.0
    }
}

const NOT_INITIALIZED: c_uint = 3;

type Context = *mut c_void;

/// Attributes of the memory at an address. The value of each is an integer or an address.
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
    ($($name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// CUDA's functions, looked up at first use. If one is missing, only its callers fail. All return a CUresult.
        #[derive(Debug)]
        pub struct Functions {
            library: ManuallyDrop<Library>,
            $($name: AtomicPtr<c_void>,)+
        }

        impl Functions {
            fn of_library(library: ManuallyDrop<Library>) -> Functions {
                Functions {
                    library,
                    $($name: AtomicPtr::new(ptr::null_mut()),)+
                }
            }

            $(
                fn $name(&self) -> Result<unsafe extern "C" fn($($argument),*) -> c_uint> {
                    let address = self.find(&self.$name, concat!($symbol, "\0"))?;
                    // SAFETY: the address is not null, and the driver API gives the symbol this type.
                    Ok(unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_uint>(address) })
                }
            )+
        }
    };
}

functions! {
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    error_name = "cuGetErrorName": fn(c_uint, *mut *const c_char);
    init = "cuInit": fn(c_uint);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device = "cuDeviceGet": fn(*mut c_int, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    pointer_attribute = "cuPointerGetAttribute": fn(*mut c_void, c_int, c_ulonglong);
    context = "cuCtxGetCurrent": fn(*mut Context);
    set_context = "cuCtxSetCurrent": fn(Context);
    context_device = "cuCtxGetDevice": fn(*mut c_int);
    context_id = "cuCtxGetId": fn(Context, *mut c_ulonglong);
    retain_context = "cuDevicePrimaryCtxRetain": fn(*mut Context, c_int);
    release_context = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    export = "cuMemGetHandleForAddressRange": fn(*mut c_void, c_ulonglong, usize, c_int, c_ulonglong);
    alloc = "cuMemAlloc_v2": fn(*mut c_ulonglong, usize);
    free = "cuMemFree_v2": fn(c_ulonglong);
    free_async = "cuMemFreeAsync": fn(c_ulonglong, *mut c_void);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    host_device_pointer = "cuMemHostGetDevicePointer_v2": fn(*mut c_ulonglong, *mut c_void, c_uint);
    stream_create = "cuStreamCreate": fn(*mut *mut c_void, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(*mut c_void);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_uint);
}

impl Functions {
    /// Finds a function. `symbol` ends with a zero byte, because libloading would otherwise allocate a copy with one.
    #[inline(never)]
    fn find(&self, cache: &AtomicPtr<c_void>, symbol: &'static str) -> Result<*mut c_void> {
        let cached = cache.load(Ordering::Relaxed);
        if !cached.is_null() {
            return Ok(cached);
        }
        // SAFETY: the symbol is only looked up, and neither called nor read here; the library stays loaded.
        let address = unsafe {
            match self.library.get::<*mut c_void>(symbol) {
                Ok(function) => function.try_as_raw_ptr(),
                Err(_) => None,
            }
        };
        let Some(address) = address else {
            return Err(Error::NoCudaFunction(symbol.trim_end_matches('\0')));
        };
        // Two threads may come here at once. That does no harm, because both find the same address.
        cache.store(address, Ordering::Relaxed);
        Ok(address)
    }
}

/// A loaded CUDA driver.
#[derive(Debug)]
pub struct Driver {
    cu: Functions,
    version: i32,
    /// True if cuInit has succeeded.
    is_initialized: AtomicBool,
}

/// The CUDA driver once it is loaded, or the reason why it cannot be used.
static LOADED: OnceBox<Result<Driver>> = OnceBox::new();

/// Returns the CUDA driver, and loads it first if it is not loaded. Fails if the driver's version is below `needed`
/// (1000 × major + 10 × minor). Asks CUDA only for its version, which needs no cuInit.
pub fn load(needed: i32) -> Result<&'static Driver> {
    let loaded = match LOADED.get() {
        Some(loaded) => loaded,
        None => {
            let Some(library) = open_library() else {
                return Err(Error::NoCuda);
            };
            // Two threads may come here at once. Both load the same library, and one result is kept.
            LOADED.get_or_init(|| Box::new(Driver::of_library(library)))
        }
    };
    let driver = loaded.as_ref().map_err(Clone::clone)?;
    let version = driver.version;
    if version < needed {
        return Err(Error::CudaTooOld { version, needed });
    }
    Ok(driver)
}

/// Loads libcuda, which then stays loaded.
fn open_library() -> Option<ManuallyDrop<Library>> {
    // The GPU driver installs libcuda.so.1. Without it, libcuda.so is tried, which may come with a CUDA toolkit.
    for name in ["libcuda.so.1", "libcuda.so"] {
        // SAFETY: loading the CUDA driver has no preconditions.
        match unsafe { Library::new(name) } {
            Ok(library) => return Some(ManuallyDrop::new(library)),
            Err(error) => match error.source() {
                Some(reason) => log::debug!("{name}: {reason}"),
                None => log::debug!("{name}: {error}"),
            },
        }
    }
    None
}

impl Driver {
    fn of_library(library: ManuallyDrop<Library>) -> Result<Driver> {
        let mut driver =
            Driver { cu: Functions::of_library(library), version: 0, is_initialized: AtomicBool::new(false) };
        let mut version = 0;
        // SAFETY: the output is a local variable.
        let result = unsafe { driver.cu.driver_version()?(&mut version) };
        driver.check("cuDriverGetVersion", result)?;
        log::debug!("CUDA {}", Version::of_cuda(version));
        driver.version = version;
        Ok(driver)
    }

    fn check(&self, call: &'static str, result: c_uint) -> Result<()> {
        match result {
            0 => Ok(()),
            code => Err(self.error(call, code)),
        }
    }

    #[cold]
    fn error(&self, call: &'static str, code: c_uint) -> Error {
        let name = self.error_name(code);
        let error = CudaError { code, name };
        Error::Cuda { call, error }
    }

    /// Initializes CUDA in this process, unless that was done before.
    pub fn init(&self) -> Result<()> {
        if !self.is_initialized.load(Ordering::Relaxed) {
            // SAFETY: cuInit takes nothing but flags, which must be 0.
            self.check("cuInit", unsafe { self.cu.init()?(0) })?;
            self.is_initialized.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the number of GPUs; `None` if the process has not initialized CUDA. Does not initialize CUDA.
    pub fn device_count_if_initialized(&self) -> Result<Option<i32>> {
        let mut count = 0;
        // SAFETY: the output is a local variable.
        match unsafe { self.cu.device_count()?(&mut count) } {
            NOT_INITIALIZED => Ok(None),
            result => self.check("cuDeviceGetCount", result).map(|()| Some(count)),
        }
    }

    /// Returns the GPU with this number.
    pub fn device(&self, ordinal: i32) -> Result<Device> {
        let mut device = 0;
        // SAFETY: the output is a local variable.
        self.check("cuDeviceGet", unsafe { self.cu.device()?(&mut device, ordinal) })?;
        Ok(Device(device))
    }

    /// Returns an attribute of the memory at an address. Fails if CUDA does not know the address.
    #[inline(never)]
    fn pointer_attribute(&self, attribute: PointerAttribute, address: u64) -> Result<u64> {
        let mut value = 0_u64;
        let output = ptr::from_mut(&mut value).cast();
        // SAFETY: the attributes are of at most 8 bytes, and the output is a local variable.
        let result = unsafe { self.cu.pointer_attribute()?(output, attribute as c_int, address) };
        self.check("cuPointerGetAttribute", result)?;
        // Shorter attributes fill the low bytes of `value`, because CUDA exists for little-endian CPUs only.
        Ok(value)
    }

    /// Returns CUDA's number of the allocation at this address. No later allocation gets the number.
    pub fn buffer_id(&self, address: u64) -> Result<u64> {
        self.pointer_attribute(PointerAttribute::BufferId, address)
    }

    /// Returns an attribute of a device; `None` if the driver does not know the attribute.
    ///
    /// # Errors
    /// [`Error::NoCudaFunction`] if the driver has no function for attributes.
    pub fn attribute(&self, device: Device, attribute: DeviceAttribute) -> Result<Option<i32>> {
        let mut value = 0;
        // SAFETY: the output is a local variable.
        let result = unsafe { self.cu.device_attribute()?(&mut value, attribute as c_int, device.0) };
        Ok(if result == 0 { Some(value) } else { None })
    }

    fn error_name(&self, code: c_uint) -> Option<&'static CStr> {
        let mut name = ptr::null();
        // SAFETY: the output is a local variable; names are constants of the driver, which stays loaded. For an unknown
        // code, the driver leaves `name` NULL, or sets it to NULL.
        unsafe {
            self.cu.error_name().ok()?(code, &mut name);
            if name.is_null() {
                return None;
            }
            Some(CStr::from_ptr(name))
        }
    }
}
