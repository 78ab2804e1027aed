//! The functions of CUDA that examples and tests call. CUDA is loaded at run time, so examples and tests build without
//! it. Outside of this repository, a program uses a crate such as cudarc.
#![allow(dead_code, reason = "each program calls a part")]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// CUDA. In the thread that called `new`, device 0's primary context is current.
pub(crate) struct Cuda(Library);

/// A GPU kernel, loaded from a text in PTX, the assembly language of NVIDIA's GPUs.
pub(crate) struct Kernel(*mut c_void);

/// The type of `cuLaunchKernel`.
type Launch = extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

impl Cuda {
    pub(crate) fn new() -> Cuda {
        // SAFETY: loading a CUDA driver has no preconditions.
        let library = unsafe { Library::new("libcuda.so.1") }.unwrap_or_else(|error| {
            eprintln!("needs a GPU, or gdremu in its place: {error}");
            std::process::exit(1)
        });
        let cuda = Cuda(library);
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the signatures are those of the CUDA driver API; the out-pointers are valid.
        unsafe {
            cuda.call::<extern "C" fn(c_uint) -> c_int>("cuInit", |f| f(0));
            cuda.call::<extern "C" fn(*mut c_int, c_int) -> c_int>("cuDeviceGet", |f| f(&mut device, 0));
            cuda.call::<extern "C" fn(*mut *mut c_void, c_int) -> c_int>("cuDevicePrimaryCtxRetain", |f| {
                f(&mut context, device)
            });
            cuda.call::<extern "C" fn(*mut c_void) -> c_int>("cuCtxSetCurrent", |f| f(context));
        }
        cuda
    }

    /// Releases device 0's primary context once, and returns whether the context is still active.
    pub(crate) fn release(&self) -> bool {
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: the signature is that of the CUDA driver API, and the arguments are valid.
        unsafe {
            self.call::<extern "C" fn(c_int) -> c_int>("cuDevicePrimaryCtxRelease_v2", |f| f(0));
            self.call::<extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int>("cuDevicePrimaryCtxGetState", |f| {
                f(0, &mut flags, &mut is_active)
            });
        }
        is_active != 0
    }

    /// Allocates GPU memory, and returns its address.
    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: the signature is that of the CUDA driver API, and the arguments are valid.
        unsafe {
            self.call::<extern "C" fn(*mut u64, usize) -> c_int>("cuMemAlloc_v2", |f| f(&mut address, bytes));
        }
        address
    }

    /// Frees memory that `alloc` returned.
    pub(crate) fn free(&self, address: u64) {
        // SAFETY: the signature is that of the CUDA driver API, and the arguments are valid.
        unsafe { self.call::<extern "C" fn(u64) -> c_int>("cuMemFree_v2", |f| f(address)) }
    }

    /// Fills GPU memory with zeros.
    pub(crate) fn clear(&self, address: u64, len: usize) {
        // SAFETY: the signature is that of the CUDA driver API, and the arguments are valid.
        unsafe { self.call::<extern "C" fn(u64, u8, usize) -> c_int>("cuMemsetD8_v2", |f| f(address, 0, len)) }
        self.synchronize();
    }

    /// Returns `len` bytes of GPU memory, copied by CUDA.
    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; len];
        // SAFETY: the signature is that of the CUDA driver API, and `bytes` has room for `len` bytes.
        unsafe {
            self.call::<extern "C" fn(*mut u8, u64, usize) -> c_int>("cuMemcpyDtoH_v2", |f| {
                f(bytes.as_mut_ptr(), address, len)
            });
        }
        bytes
    }

    /// Writes `bytes` to GPU memory, copied by CUDA.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: the signature is that of the CUDA driver API, and the host range is `bytes`.
        unsafe {
            self.call::<extern "C" fn(u64, *const u8, usize) -> c_int>("cuMemcpyHtoD_v2", |f| {
                f(address, bytes.as_ptr(), bytes.len())
            });
        }
        self.synchronize(); // A small copy may return before the data has arrived.
    }

    /// Loads a PTX text, and returns its GPU kernel `name`.
    pub(crate) fn kernel(&self, ptx: &str, name: &str) -> Kernel {
        let (ptx, name) = (CString::new(ptx), CString::new(name));
        let (ptx, name) = (ptx.expect("text"), name.expect("a name"));
        let (mut module, mut kernel) = (null_mut(), Kernel(null_mut()));
        // SAFETY: the signatures are those of CUDA's driver API. Both strings end with a NUL. The module stays loaded.
        unsafe {
            self.call::<extern "C" fn(*mut *mut c_void, *const c_void) -> c_int>("cuModuleLoadData", |f| {
                f(&mut module, ptx.as_ptr().cast())
            });
            self.call::<extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> c_int>("cuModuleGetFunction", |f| {
                f(&mut kernel.0, module, name.as_ptr().cast())
            });
        }
        kernel
    }

    /// Starts one block of a GPU kernel. Each element of `parameters` is a `u64`, or has a `u32` in its lower half.
    ///
    /// # Safety
    /// The parameters have the number and types that the GPU kernel declares. The memory that they point to stays valid
    /// until the GPU kernel ends.
    pub(crate) unsafe fn launch(&self, kernel: &Kernel, threads: u32, parameters: &[u64]) {
        let places = parameters.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast());
        let mut places: Vec<*mut c_void> = places.collect();
        let (stream, extra) = (null_mut(), null_mut());
        let places = places.as_mut_ptr();
        // SAFETY: the signature is that of the CUDA driver API; contract of this function.
        unsafe {
            self.call::<Launch>("cuLaunchKernel", |f| f(kernel.0, 1, 1, 1, threads, 1, 1, 0, stream, places, extra));
        }
    }

    /// Waits until all GPU kernels and copies have ended.
    pub(crate) fn synchronize(&self) {
        // SAFETY: the signature is that of the CUDA driver API, and the arguments are valid.
        unsafe { self.call::<extern "C" fn() -> c_int>("cuCtxSynchronize", |f| f()) }
    }

    /// Passes CUDA's function `name` to `call`. Panics if there is no such function, or if `call` returns an error.
    ///
    /// # Safety
    /// `F` is the function's type, and `call` passes valid arguments to the function.
    pub(crate) unsafe fn call<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_int) {
        // SAFETY: contract of this function.
        let function = unsafe { self.0.get::<F>(name) }.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(call(*function), 0, "{name}");
    }
}
