//! The real CUDA driver, asked what an address belongs to.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::{fs, mem, ptr};

use super::Failure;

/// The step that fails when an address is no GPU memory of the process.
pub(super) const NOT_GPU_MEMORY: &str = "the search for the allocation of a device address";

const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
const HANDLE_TYPE_POSIX_FD: c_int = 1;

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// The entry points in use. All answer with a CUresult, 0 for success.
        #[derive(Debug)]
        pub(super) struct Cuda {
            $($name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
        }

        impl Cuda {
            /// Loads libcuda, for good.
            pub(super) fn load() -> Result<Cuda, String> {
                // SAFETY: loading the CUDA driver has no preconditions.
                let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
                if library.is_null() {
                    return Err("gdremu: nvidia provider: no libcuda.so.1 on this machine".into());
                }
                Ok(Cuda {
                    $($name: {
                        let function = symbol(library, $symbol)?;
                        // SAFETY: the driver API gives the symbol this type.
                        unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_uint>(function) }
                    },)+
                })
            }
        }
    };
}

functions! {
    context = c"cuCtxGetCurrent": fn(*mut *mut c_void);
    set_context = c"cuCtxSetCurrent": fn(*mut c_void);
    retain_context = c"cuDevicePrimaryCtxRetain": fn(*mut *mut c_void, c_int);
    release_context = c"cuDevicePrimaryCtxRelease_v2": fn(c_int);
    device = c"cuDeviceGet": fn(*mut c_int, c_int);
    pci_bus_id = c"cuDeviceGetPCIBusId": fn(*mut u8, c_int, c_int);
    pointer_attribute = c"cuPointerGetAttribute": fn(*mut c_void, c_int, u64);
    address_range = c"cuMemGetAddressRange_v2": fn(*mut u64, *mut usize, u64);
    retain_handle = c"cuMemRetainAllocationHandle": fn(*mut u64, *mut c_void);
    export_handle = c"cuMemExportToShareableHandle": fn(*mut c_void, u64, c_int, u64);
    release_handle = c"cuMemRelease": fn(u64);
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open, the name a C string.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() {
        let name = name.to_string_lossy();
        return Err(format!("gdremu: nvidia provider: this CUDA driver has no {name}"));
    }
    Ok(function)
}

/// An allocation, or one mapping of VMM memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) base: u64,
    pub(super) len: u64,
    /// CUDA's number of its GPU.
    pub(super) gpu: i32,
}

impl Cuda {
    /// The allocation that a device address lies in.
    pub(super) fn allocation(&self, va: u64) -> Result<Allocation, Failure> {
        let mut gpu: c_int = 0;
        let place = ptr::from_mut(&mut gpu).cast();
        // SAFETY: the attribute is an int.
        check(NOT_GPU_MEMORY, unsafe {
            (self.pointer_attribute)(place, POINTER_ATTRIBUTE_DEVICE_ORDINAL, va)
        })?;
        let (mut base, mut len) = (0, 0);
        self.in_context(gpu, || {
            // SAFETY: both places are ours.
            check(NOT_GPU_MEMORY, unsafe { (self.address_range)(&mut base, &mut len, va) })
        })?;
        Ok(Allocation { base, len: len as u64, gpu })
    }

    /// A descriptor of the physical memory behind a device address.
    pub(super) fn export(&self, va: u64) -> Result<File, Failure> {
        let (mut handle, mut fd): (u64, c_int) = (0, -1);
        // SAFETY: the places are ours; the address is only looked up.
        unsafe {
            check("the retaining of an allocation (is it a VMM allocation?)", {
                (self.retain_handle)(&mut handle, ptr::without_provenance_mut(va as usize))
            })?;
            let place = ptr::from_mut(&mut fd).cast();
            let exported = (self.export_handle)(place, handle, HANDLE_TYPE_POSIX_FD, 0);
            (self.release_handle)(handle);
            check("the export of an allocation", exported)?;
            Ok(File::from_raw_fd(fd))
        }
    }

    /// The N of a GPU's `/dev/nvidiaN`.
    pub(super) fn device_minor(&self, gpu: i32) -> Result<u32, Failure> {
        let (mut device, mut name) = (0, [0_u8; 32]);
        // SAFETY: the places are ours, and as long as said.
        unsafe {
            check("the search for a GPU", (self.device)(&mut device, gpu))?;
            let len = name.len() as c_int;
            check("the search for a GPU", (self.pci_bus_id)(name.as_mut_ptr(), len, device))?;
        }
        let bus_id = CStr::from_bytes_until_nul(&name).unwrap_or(c"").to_string_lossy();
        let path = format!("/proc/driver/nvidia/gpus/{}/information", bus_id.to_lowercase());
        let text = fs::read_to_string(path).unwrap_or_default();
        let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:"));
        // A driver that does not say has one GPU, or numbers them alike.
        Ok(minor.and_then(|number| number.trim().parse().ok()).unwrap_or(gpu as u32))
    }

    /// Works in the GPU's primary context where the thread has none, and leaves the thread as it was.
    fn in_context(&self, gpu: i32, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let mut current = ptr::null_mut();
        // SAFETY: the places are ours; what is retained is released below.
        unsafe {
            check("the search for a context", (self.context)(&mut current))?;
            if !current.is_null() {
                return work();
            }
            let (mut device, mut context) = (0, ptr::null_mut());
            check("the search for a GPU", (self.device)(&mut device, gpu))?;
            check("the retaining of a context", (self.retain_context)(&mut context, device))?;
            (self.set_context)(context);
            let result = work();
            (self.set_context)(ptr::null_mut());
            (self.release_context)(device);
            result
        }
    }
}

fn check(step: &'static str, result: c_uint) -> Result<(), Failure> {
    if result == 0 { Ok(()) } else { Err(Failure::refused(step, result)) }
}
