//! NVIDIA's management library, the only source for the use of BAR1.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

type Device = *mut c_void;

/// `nvmlBAR1Memory_t`, all in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct Bar1 {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

const _: () = assert!(size_of::<Bar1>() == 24);

/// The initialized library. It stays loaded.
#[derive(Debug)]
pub(crate) struct Nvml {
    device: unsafe extern "C" fn(*const c_char, *mut Device) -> c_int,
    bar1: unsafe extern "C" fn(Device, *mut Bar1) -> c_int,
    driver_version: unsafe extern "C" fn(*mut c_char, c_uint) -> c_int,
}

impl Nvml {
    /// Loads it; `None` if it is missing or does not work.
    pub(crate) fn load() -> Option<Nvml> {
        // SAFETY: NVML may be loaded at any time; the types are those of its API.
        unsafe {
            let library = Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL).ok()?;
            let init = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            if init() != 0 {
                return None;
            }
            let nvml = Nvml {
                device: *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?,
                bar1: *library.get(b"nvmlDeviceGetBAR1MemoryInfo\0").ok()?,
                driver_version: *library.get(b"nvmlSystemGetDriverVersion\0").ok()?,
            };
            std::mem::forget(library);
            Some(nvml)
        }
    }

    /// BAR1 of the GPU at this PCI address.
    pub(crate) fn bar1(&self, pci_address: &str) -> Option<Bar1> {
        let address = CString::new(pci_address).ok()?;
        let (mut device, mut bar1) = (ptr::null_mut(), Bar1::default());
        // SAFETY: the address is a C string, the others are local variables.
        let found = unsafe { (self.device)(address.as_ptr(), &mut device) == 0 && (self.bar1)(device, &mut bar1) == 0 };
        found.then_some(bar1)
    }

    /// The version of the GPU driver, as `580.95.05`.
    pub(crate) fn driver_version(&self) -> Option<String> {
        let mut text = [0u8; 96];
        // SAFETY: the text is a local variable, of the length that NVML receives.
        let result = unsafe { (self.driver_version)(text.as_mut_ptr().cast(), text.len() as c_uint) };
        let end = text.iter().position(|&byte| byte == 0)?;
        (result == 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    }
}
