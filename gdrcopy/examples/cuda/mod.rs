//! The few CUDA calls of the examples, so that they build without CUDA. Programs use a crate such as cudarc.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// CUDA with device 0's primary context current in the calling thread.
pub(crate) struct Cuda(Library);

/// A function of a PTX module.
pub(crate) struct Kernel(*mut c_void);

/// The arguments of `cuLaunchKernel`.
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

    /// The GPU kernel `name` of a PTX text.
    pub(crate) fn kernel(&self, ptx: &str, name: &str) -> Kernel {
        let (ptx, name) = (CString::new(ptx), CString::new(name));
        let (ptx, name) = (ptx.expect("text"), name.expect("a name"));
        let (mut module, mut kernel) = (null_mut(), Kernel(null_mut()));
        // SAFETY: as in `new`; both strings end with a NUL. The module is never unloaded.
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

    /// Starts one block of a kernel. Each parameter is a `u64`, or a `u32` in the lower half of one.
    ///
    /// # Safety
    /// The parameters are the kernel's, and what they point to is its to use until it ends.
    pub(crate) unsafe fn launch(&self, kernel: &Kernel, threads: u32, parameters: &[u64]) {
        let places = parameters.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast());
        let mut places: Vec<*mut c_void> = places.collect();
        let (stream, extra) = (null_mut(), null_mut());
        let places = places.as_mut_ptr();
        // SAFETY: as in `new`; contract of this function.
        unsafe {
            self.call::<Launch>("cuLaunchKernel", |f| f(kernel.0, 1, 1, 1, threads, 1, 1, 0, stream, places, extra));
        }
    }

    /// Waits until all kernels have ended.
    pub(crate) fn synchronize(&self) {
        // SAFETY: as in `new`.
        unsafe { self.call::<extern "C" fn() -> c_int>("cuCtxSynchronize", |f| f()) }
    }

    /// # Safety
    /// `F` is the function's type, and `call` passes it what it may be passed.
    unsafe fn call<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_int) {
        // SAFETY: contract of this function.
        let function = unsafe { self.0.get::<F>(name) }.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(call(*function), 0, "{name}");
    }
}
