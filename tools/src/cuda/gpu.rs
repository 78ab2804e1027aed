//! Lists the GPUs that CUDA finds, and opens one of them.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use anyhow::{Result, bail};
use cudarc::driver::sys::{CUcontext, CUdevice};
use serde::{Deserialize, Serialize};

use super::driver::{CudaError, functions};

functions! {
    pub(super) struct Functions {
        init: c"cuInit" (flags: c_uint);
        driver_version: c"cuDriverGetVersion" (version: *mut c_int);
        device_count: c"cuDeviceGetCount" (count: *mut c_int);
        device_get: c"cuDeviceGet" (device: *mut CUdevice, number: c_int);
        device_name: c"cuDeviceGetName" (name: *mut c_char, len: c_int, device: CUdevice);
        device_memory: c"cuDeviceTotalMem_v2" (bytes: *mut usize, device: CUdevice);
        pci_address: c"cuDeviceGetPCIBusId" (address: *mut c_char, len: c_int, device: CUdevice);
        attribute: c"cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: CUdevice);
        retain_context: c"cuDevicePrimaryCtxRetain" (context: *mut CUcontext, device: CUdevice);
        set_context: c"cuCtxSetCurrent" (context: CUcontext);
        synchronize: c"cuCtxSynchronize" ();
    }
}

/// A GPU as CUDA lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) number: i32,
    pub(crate) name: String,
    /// The PCI address, in the form `0000:17:00.0`.
    pub(crate) pci_address: String,
    #[serde(skip)]
    pub(super) handle: CUdevice,
}

/// A GPU, with its primary context current in the thread that opened it.
#[derive(Debug)]
pub(crate) struct Gpu {
    functions: &'static Functions,
    /// All GPUs, including this one.
    pub(crate) devices: Vec<Device>,
    number: usize,
    /// The CUDA version that the driver supports: 1000 × major + 10 × minor.
    pub(crate) version: c_int,
}

impl Gpu {
    /// Initializes CUDA, and makes the primary context of this GPU current. Never releases the context.
    pub(crate) fn open(number: i32) -> Result<&'static Gpu> {
        let functions = Functions::get()?;
        // SAFETY: 0 is the only valid value for the flags of cuInit.
        unsafe { functions.init(0) }?;
        let version = functions.version()?;
        let devices = functions.devices()?;
        let Some(place) = devices.iter().position(|device| device.number == number) else {
            bail!("there is no GPU {number}; CUDA has {}", devices.len());
        };
        let mut context = ptr::null_mut();
        // SAFETY: the context is a local variable. It is never released, so it can be made current.
        unsafe {
            functions.retain_context(&mut context, devices[place].handle)?;
            functions.set_context(context)?;
        }
        Ok(Box::leak(Box::new(Gpu { functions, devices, number: place, version })))
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the function has no arguments.
        unsafe { self.functions.synchronize() }
    }

    /// The GPU's entry in CUDA's list.
    pub(crate) fn device(&self) -> &Device {
        &self.devices[self.number]
    }
}

impl Functions {
    pub(super) fn version(&self) -> Result<c_int, CudaError> {
        let mut version = 0;
        // SAFETY: the version is a local variable.
        unsafe { self.driver_version(&mut version) }?;
        Ok(version)
    }

    /// Returns all GPUs. CUDA must be initialized.
    pub(super) fn devices(&self) -> Result<Vec<Device>, CudaError> {
        let mut count = 0;
        // SAFETY: the count is a local variable.
        unsafe { self.device_count(&mut count) }?;
        let mut devices = Vec::new();
        for number in 0..count {
            let mut handle = 0;
            let mut name = [0; 256];
            let mut pci_address = [0; 32];
            // SAFETY: the driver writes into local variables, of the lengths that it receives.
            unsafe {
                self.device_get(&mut handle, number)?;
                self.device_name(name.as_mut_ptr(), 256, handle)?;
                self.pci_address(pci_address.as_mut_ptr(), 32, handle)?;
            }
            devices.push(Device { number, name: text(&name), pci_address: text(&pci_address), handle });
        }
        Ok(devices)
    }

    /// Returns an attribute's value, or `None` if the driver does not know the attribute.
    pub(super) fn attribute_of(&self, device: &Device, attribute: c_int) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: the value is a local variable.
        let known = unsafe { self.attribute(&mut value, attribute, device.handle) };
        if known.is_ok() { Some(value) } else { None }
    }
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&char| char as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
