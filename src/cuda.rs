//! The CUDA driver, loaded when the dma-buf backend needs it and never before.
//!
//! Result codes stay plain integers: a driver newer than this library may answer with any number. The
//! library stays loaded once it is: others in the process use it too.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use libloading::Library;
use once_cell::sync::OnceCell;

use crate::error::{CudaVersion, Error, Result};
use crate::log;

/// A CUresult that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError(pub c_uint);

impl CudaError {
    /// The errno that stands for it: the table of `docs/compatibility.md`.
    pub fn errno(self) -> i32 {
        match self.0 {
            1 => libc::EINVAL,           // INVALID_VALUE
            2 => libc::ENOMEM,           // OUT_OF_MEMORY
            3 | 4 | 201 => libc::EINVAL, // NOT_INITIALIZED, DEINITIALIZED, INVALID_CONTEXT
            800 => libc::EPERM,          // NOT_PERMITTED
            801 => libc::EOPNOTSUPP,     // NOT_SUPPORTED
            _ => libc::EIO,
        }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DRIVER.get().and_then(|driver| driver.error_name(self.0)) {
            Some(name) => write!(f, "{} ({})", name.to_string_lossy(), self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

/// Attributes of a device.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum DeviceAttribute {
    /// The CPU and the GPU share page tables: a coherent platform.
    HostPageTables = 100,
    /// Memory can be exported as a dma-buf.
    DmaBuf = 124,
    /// And the dma-buf can be mapped.
    DmaBufMmap = 152,
}

/// A device of CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device(c_int);

impl Device {
    /// CUDA's number of it, as `CUDA_VISIBLE_DEVICES` leaves them.
    pub(crate) fn ordinal(self) -> i32 {
        self.0
    }
}

const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
const HANDLE_TYPE_DMA_BUF_FD: c_int = 1;
const RANGE_FLAG_PCIE: c_ulonglong = 1;

type Context = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// The entry points in use. All answer with a CUresult.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
            /// Outcome of cuInit, which is called once.
            initialised: OnceCell<()>,
        }

        impl Driver {
            fn from_library(library: Library) -> Result<Driver> {
                let driver = Driver {
                    $($name: {
                        // SAFETY: the driver API gives the symbol this type.
                        let symbol = unsafe { library.get($symbol) };
                        *symbol.map_err(|_| Error::NoCudaFunction($symbol))?
                    },)+
                    initialised: OnceCell::new(),
                };
                // Never unloaded: others in the process may rely on it by now.
                std::mem::forget(library);
                Ok(driver)
            }
        }
    };
}

functions! {
    error_name = "cuGetErrorName": fn(c_uint, *mut *const c_char);
    init = "cuInit": fn(c_uint);
    device = "cuDeviceGet": fn(*mut c_int, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    pointer_attribute = "cuPointerGetAttribute": fn(*mut c_void, c_int, c_ulonglong);
    context = "cuCtxGetCurrent": fn(*mut Context);
    set_context = "cuCtxSetCurrent": fn(Context);
    context_device = "cuCtxGetDevice": fn(*mut c_int);
    retain_context = "cuDevicePrimaryCtxRetain": fn(*mut Context, c_int);
    release_context = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    export = "cuMemGetHandleForAddressRange": fn(*mut c_void, c_ulonglong, usize, c_int, c_ulonglong);
}

static DRIVER: OnceCell<Driver> = OnceCell::new();

/// The CUDA driver, loaded now if need be, if it is of this version or later (1000 × major + 10 × minor). It is
/// asked for its version, which needs no cuInit, and for nothing else.
pub(crate) fn load(needed: i32) -> Result<&'static Driver> {
    DRIVER.get_or_try_init(|| {
        // The name with the version is the driver's own; the other one comes with the toolkit.
        let library = ["libcuda.so.1", "libcuda.so"]
            .into_iter()
            // SAFETY: loading the CUDA driver has no preconditions.
            .find_map(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or(Error::NoCuda)?;
        let version = version(&library)?;
        if version < needed {
            return Err(Error::CudaTooOld { version, needed });
        }
        log::debug!("CUDA {}", CudaVersion(version));
        Driver::from_library(library)
    })
}

fn version(library: &Library) -> Result<i32> {
    const NAME: &str = "cuDriverGetVersion";
    let mut version = 0;
    // SAFETY: the driver API gives the symbol this type; the place is ours.
    unsafe {
        let function = library.get::<unsafe extern "C" fn(*mut c_int) -> c_uint>(NAME);
        let function = function.map_err(|_| Error::NoCudaFunction(NAME))?;
        check(NAME, function(&mut version))?;
    }
    Ok(version)
}

fn check(call: &'static str, result: c_uint) -> Result<()> {
    match result {
        0 => Ok(()),
        code => Err(Error::Cuda {
            call,
            error: CudaError(code),
        }),
    }
}

impl Driver {
    /// Has CUDA initialised in this process, once.
    pub(crate) fn init(&self) -> Result<()> {
        self.initialised
            // SAFETY: cuInit takes flags, of which there are none.
            .get_or_try_init(|| check("cuInit", unsafe { (self.init)(0) }))
            .copied()
    }

    /// The device whose memory is at this address.
    pub(crate) fn device_of(&self, address: u64) -> Result<Device> {
        let (mut ordinal, mut device): (c_int, c_int) = (0, 0);
        let place = ptr::from_mut(&mut ordinal).cast();
        // SAFETY: the attribute is an int, and the places are ours.
        unsafe {
            let attribute = POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            check(
                "cuPointerGetAttribute",
                (self.pointer_attribute)(place, attribute, address),
            )?;
            check("cuDeviceGet", (self.device)(&mut device, ordinal))?;
        }
        Ok(Device(device))
    }

    /// An attribute of a device, or `None` if the driver does not know it.
    pub(crate) fn attribute(&self, device: Device, attribute: DeviceAttribute) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the place is ours.
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
        let mut fd: c_int = -1;
        self.in_context(device, || {
            let place = ptr::from_mut(&mut fd).cast();
            // SAFETY: the handle is an int; the range is only looked up.
            check("cuMemGetHandleForAddressRange", unsafe {
                (self.export)(place, address, len, HANDLE_TYPE_DMA_BUF_FD, flags)
            })
        })?;
        // SAFETY: the descriptor is new and ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Works with a context of the device current in the calling thread, and leaves the thread as it was.
    fn in_context(&self, device: Device, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let (mut before, mut current_device) = (ptr::null_mut(), -1);
        // SAFETY: the places are ours; what is retained is released.
        unsafe {
            check("cuCtxGetCurrent", (self.context)(&mut before))?;
            if !before.is_null() {
                check("cuCtxGetDevice", (self.context_device)(&mut current_device))?;
            }
            if current_device == device.0 {
                return work();
            }
            let mut primary = ptr::null_mut();
            check(
                "cuDevicePrimaryCtxRetain",
                (self.retain_context)(&mut primary, device.0),
            )?;
            let result =
                check("cuCtxSetCurrent", (self.set_context)(primary)).and_then(|()| work());
            let restored = check("cuCtxSetCurrent", (self.set_context)(before));
            let released = check(
                "cuDevicePrimaryCtxRelease",
                (self.release_context)(device.0),
            );
            result.and(restored).and(released)
        }
    }

    fn error_name(&self, code: c_uint) -> Option<&'static CStr> {
        let mut name = ptr::null();
        // SAFETY: the place is ours; names are constants of the driver, which stays loaded.
        unsafe {
            ((self.error_name)(code, &mut name) == 0 && !name.is_null())
                .then(|| CStr::from_ptr(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_is_success_and_unknown_ones_are_harmless() {
        for (code, errno) in [
            (1, libc::EINVAL),
            (2, libc::ENOMEM),
            (201, libc::EINVAL),
            (800, libc::EPERM),
            (801, libc::EOPNOTSUPP),
            (304, libc::EIO),
            (u32::MAX, libc::EIO),
        ] {
            assert_eq!(CudaError(code).errno(), errno);
        }
    }
}
