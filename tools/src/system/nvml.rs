//! NVIDIA's management library, for the version of the GPU driver.

use std::ffi::{c_char, c_int, c_uint};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The initialized library. It stays loaded.
#[derive(Debug)]
pub(crate) struct Nvml {
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
            let nvml = Nvml { driver_version: *library.get(b"nvmlSystemGetDriverVersion\0").ok()? };
            std::mem::forget(library);
            Some(nvml)
        }
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
