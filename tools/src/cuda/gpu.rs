//! The list of GPUs, and an open GPU.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use anyhow::{Result, bail};
use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute};

use super::driver::{CudaError, Driver, functions};

functions! {
    struct Functions {
        init: c"cuInit" (c_uint);
        driver_version: c"cuDriverGetVersion" (*mut c_int);
        device_count: c"cuDeviceGetCount" (*mut c_int);
        device_get: c"cuDeviceGet" (*mut CUdevice, c_int);
        device_name: c"cuDeviceGetName" (*mut c_char, c_int, CUdevice);
        pci_address: c"cuDeviceGetPCIBusId" (*mut c_char, c_int, CUdevice);
        attribute: c"cuDeviceGetAttribute" (*mut c_int, CUdevice_attribute, CUdevice);
        retain_context: c"cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
        set_context: c"cuCtxSetCurrent" (CUcontext);
        synchronize: c"cuCtxSynchronize" ();
    }
}

/// A GPU as CUDA lists it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Device {
    pub(crate) number: i32,
    pub(crate) name: String,
    /// As `0000:17:00.0`.
    pub(crate) pci_address: String,
    handle: CUdevice,
}

/// A GPU, with its primary context current in the thread that opened it.
#[derive(Debug)]
pub(crate) struct Gpu {
    driver: &'static Driver,
    functions: &'static Functions,
    /// All GPUs, including this one.
    pub(crate) devices: Vec<Device>,
    number: usize,
    context: CUcontext,
    /// The CUDA version that the driver serves, as 1000 times the major version, and 10 times the
    /// minor.
    pub(crate) version: c_int,
}

// SAFETY: a context may be used by any thread, and the driver synchronizes its calls.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Opens the GPU with this number, for the rest of the process.
    pub(crate) fn open(number: i32) -> Result<&'static Gpu> {
        let driver = Driver::load()?;
        let functions = Functions::get(driver)?;
        let (mut version, mut context) = (0, ptr::null_mut());
        // SAFETY: what is written to lives through the calls.
        unsafe {
            driver.check("cuInit", (functions.init)(0))?;
            driver.check("cuDriverGetVersion", (functions.driver_version)(&mut version))?;
        }
        let devices = devices(driver, functions)?;
        let place = devices.iter().position(|device| device.number == number);
        let Some(place) = place else {
            bail!("there is no GPU {number}; CUDA has {}", devices.len());
        };
        // SAFETY: as above.
        unsafe {
            let retained = (functions.retain_context)(&mut context, devices[place].handle);
            driver.check("cuDevicePrimaryCtxRetain", retained)?;
        }
        let gpu = Gpu { driver, functions, devices, number: place, context, version };
        gpu.use_in_this_thread()?;
        Ok(Box::leak(Box::new(gpu)))
    }

    /// Makes its context the calling thread's current one.
    pub(crate) fn use_in_this_thread(&self) -> Result<(), CudaError> {
        // SAFETY: the context was retained and is never released.
        let result = unsafe { (self.functions.set_context)(self.context) };
        self.driver.check("cuCtxSetCurrent", result)
    }

    /// Waits until the GPU has finished all work.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: no arguments.
        let result = unsafe { (self.functions.synchronize)() };
        self.driver.check("cuCtxSynchronize", result)
    }

    /// An attribute's value; none if the driver does not know it.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: the value is a local variable.
        let result = unsafe { (self.functions.attribute)(&mut value, attribute, self.device().handle) };
        (result == 0).then_some(value)
    }

    /// Its entry in CUDA's list.
    pub(crate) fn device(&self) -> &Device {
        &self.devices[self.number]
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn handle(&self) -> CUdevice {
        self.device().handle
    }
}

fn devices(driver: &Driver, functions: &Functions) -> Result<Vec<Device>, CudaError> {
    let mut count = 0;
    // SAFETY: the count is a local variable.
    driver.check("cuDeviceGetCount", unsafe { (functions.device_count)(&mut count) })?;
    (0..count)
        .map(|number| {
            let (mut handle, mut name, mut pci_address) = (0, [0; 256], [0; 32]);
            // SAFETY: the driver writes into local variables, of the lengths that it receives.
            unsafe {
                driver.check("cuDeviceGet", (functions.device_get)(&mut handle, number))?;
                let named = (functions.device_name)(name.as_mut_ptr(), 256, handle);
                driver.check("cuDeviceGetName", named)?;
                let placed = (functions.pci_address)(pci_address.as_mut_ptr(), 32, handle);
                driver.check("cuDeviceGetPCIBusId", placed)?;
            }
            Ok(Device { number, name: text(&name), pci_address: text(&pci_address), handle })
        })
        .collect()
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&char| char as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
