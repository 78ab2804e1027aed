//! The CUDA driver: GPU memory, pinned host memory, and CUDA's own copies, which judge the others.
//!
//! The few functions that are needed are declared here and looked up in libcuda.so.1 when the program
//! starts, so that it builds and loads anywhere. Results are plain numbers: a newer driver knows
//! errors that no list of ours has.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

type DevicePtr = u64;

/// Declares the function table and fills it from a library.
macro_rules! functions {
    ($($field:ident: $symbol:literal ($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Functions {
            /// # Safety
            /// The library must be a CUDA driver, and stay loaded as long as the table is used.
            unsafe fn look_up(library: &Library) -> Result<Functions> {
                // SAFETY: the types are those of the CUDA driver API; the caller vouches for the rest.
                unsafe { Ok(Functions { $($field: *library.get($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    init: b"cuInit\0" (c_uint);
    driver_version: b"cuDriverGetVersion\0" (*mut c_int);
    device_get: b"cuDeviceGet\0" (*mut c_int, c_int);
    device_name: b"cuDeviceGetName\0" (*mut c_char, c_int, c_int);
    retain_context: b"cuDevicePrimaryCtxRetain\0" (*mut *mut c_void, c_int);
    set_context: b"cuCtxSetCurrent\0" (*mut c_void);
    synchronize: b"cuCtxSynchronize\0" ();
    alloc: b"cuMemAlloc_v2\0" (*mut DevicePtr, usize);
    free: b"cuMemFree_v2\0" (DevicePtr);
    to_device: b"cuMemcpyHtoD_v2\0" (DevicePtr, *const c_void, usize);
    from_device: b"cuMemcpyDtoH_v2\0" (*mut c_void, DevicePtr, usize);
    host_alloc: b"cuMemHostAlloc\0" (*mut *mut c_void, usize, c_uint);
    host_free: b"cuMemFreeHost\0" (*mut c_void);
    error_name: b"cuGetErrorName\0" (c_int, *mut *const c_char);
}

/// A GPU, with its primary context current in the thread that opened it.
#[derive(Debug)]
pub(crate) struct Cuda {
    functions: Functions,
    pub(crate) gpu_name: String,
    /// 1000 times the major version, and 10 times the minor.
    pub(crate) version: c_int,
}

impl Cuda {
    /// Opens the GPU with this number, for the rest of the process.
    pub(crate) fn open(gpu: c_int) -> Result<&'static Cuda> {
        // SAFETY: loading a CUDA driver is what CUDA programs do first; it is never unloaded.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) }
            .context("no CUDA driver; without a GPU, run it under gdremu")?;
        // SAFETY: the library is kept loaded below.
        let functions = unsafe { Functions::look_up(&library) }?;
        std::mem::forget(library);
        let mut cuda = Cuda {
            functions,
            gpu_name: String::new(),
            version: 0,
        };
        let (mut version, mut device, mut context) = (0, 0, ptr::null_mut());
        let mut name = [0; 256];
        let f = &cuda.functions;
        // SAFETY: the arguments are as the driver API wants them, and live through each call.
        unsafe {
            cuda.check("cuInit", (f.init)(0))?;
            cuda.check("cuDriverGetVersion", (f.driver_version)(&mut version))?;
            cuda.check("cuDeviceGet", (f.device_get)(&mut device, gpu))?;
            cuda.check(
                "cuDeviceGetName",
                (f.device_name)(name.as_mut_ptr(), 255, device),
            )?;
            cuda.check(
                "cuDevicePrimaryCtxRetain",
                (f.retain_context)(&mut context, device),
            )?;
            cuda.check("cuCtxSetCurrent", (f.set_context)(context))?;
            cuda.gpu_name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        }
        cuda.version = version;
        Ok(Box::leak(Box::new(cuda)))
    }

    fn check(&self, call: &str, result: c_int) -> Result<()> {
        if result == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the driver sets the pointer to a constant string, or to NULL.
        let name = unsafe {
            (self.functions.error_name)(result, &mut name);
            NonNull::new(name.cast_mut()).map(|name| CStr::from_ptr(name.as_ptr()))
        };
        bail!(
            "{call}: error {result} ({})",
            name.unwrap_or(c"unknown").to_string_lossy()
        )
    }
}

/// Bytes of a GPU page, to whose start buffers are aligned.
const GPU_PAGE: usize = 64 << 10;

/// GPU memory that starts on a GPU page.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    cuda: &'static Cuda,
    allocation: DevicePtr,
    address: DevicePtr,
    len: usize,
}

impl DeviceBuffer {
    /// At least `len` bytes, rounded up to whole GPU pages.
    pub(crate) fn alloc(cuda: &'static Cuda, len: usize) -> Result<DeviceBuffer> {
        let len = len.next_multiple_of(GPU_PAGE);
        let mut allocation = 0;
        // SAFETY: the address is written to a local variable.
        let result = unsafe { (cuda.functions.alloc)(&mut allocation, len + GPU_PAGE - 1) };
        cuda.check("cuMemAlloc", result)?;
        Ok(DeviceBuffer {
            cuda,
            allocation,
            address: allocation.next_multiple_of(GPU_PAGE as u64),
            len,
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies `bytes` to its start; they are there when it returns.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the slice is readable.
        unsafe { self.copy_in(bytes.as_ptr(), 0, bytes.len()) }?;
        // SAFETY: no arguments. Small copies may return before their bytes have arrived.
        let result = unsafe { (self.cuda.functions.synchronize)() };
        self.cuda.check("cuCtxSynchronize", result)
    }

    /// Copies from its start.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the slice is writable.
        unsafe { self.copy_out(bytes.as_mut_ptr(), 0, bytes.len()) }
    }

    /// cuMemcpyHtoD to this offset.
    ///
    /// # Safety
    /// `source` must be readable for `len` bytes.
    pub(crate) unsafe fn copy_in(&self, source: *const u8, at: usize, len: usize) -> Result<()> {
        assert!(at + len <= self.len);
        // SAFETY: the caller vouches for the host side; the device side lies in the buffer.
        let result = unsafe {
            (self.cuda.functions.to_device)(self.address + at as u64, source.cast(), len)
        };
        self.cuda.check("cuMemcpyHtoD", result)
    }

    /// cuMemcpyDtoH from this offset.
    ///
    /// # Safety
    /// `target` must be writable for `len` bytes.
    pub(crate) unsafe fn copy_out(&self, target: *mut u8, at: usize, len: usize) -> Result<()> {
        assert!(at + len <= self.len);
        // SAFETY: the caller vouches for the host side; the device side lies in the buffer.
        let result = unsafe {
            (self.cuda.functions.from_device)(target.cast(), self.address + at as u64, len)
        };
        self.cuda.check("cuMemcpyDtoH", result)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: the allocation is ours, and nothing uses it any more.
        unsafe { (self.cuda.functions.free)(self.allocation) };
    }
}

/// Host memory that the GPU can reach without help of the CPU. It starts on a page.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    cuda: &'static Cuda,
    address: NonNull<u8>,
    len: usize,
}

impl PinnedBuffer {
    pub(crate) fn alloc(cuda: &'static Cuda, len: usize) -> Result<PinnedBuffer> {
        let mut address = ptr::null_mut();
        // SAFETY: the address is written to a local variable.
        cuda.check("cuMemHostAlloc", unsafe {
            (cuda.functions.host_alloc)(&mut address, len, 0)
        })?;
        let address = NonNull::new(address.cast::<u8>()).context("cuMemHostAlloc gave NULL")?;
        // SAFETY: the memory is ours. Writing it makes every byte of it initialized.
        unsafe { address.write_bytes(0, len) };
        Ok(PinnedBuffer { cuda, address, len })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: initialized memory of this length, borrowed as the buffer is.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory is ours, and nothing uses it any more.
        unsafe { (self.cuda.functions.host_free)(self.address.as_ptr().cast()) };
    }
}
