//! The few CUDA calls that the tests need, from whatever `libcuda.so.1` the loader finds.

use std::ffi::{c_int, c_uint, c_void};

use libloading::Library;

/// CUDA with device 0's primary context current in the calling thread.
pub(crate) struct Cuda(Library);

impl Cuda {
    pub(crate) fn new() -> Cuda {
        // SAFETY: loading a CUDA driver, real or emulated, has no preconditions.
        let cuda = Cuda(unsafe { Library::new("libcuda.so.1") }.expect("a CUDA driver"));
        let (mut device, mut context): (c_int, *mut c_void) = (0, std::ptr::null_mut());
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

    /// Releases device 0's primary context, once, and returns whether it exists still.
    #[allow(dead_code, reason = "others call it")]
    pub(crate) fn release(&self) -> bool {
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: as in `new`.
        unsafe {
            self.call::<extern "C" fn(c_int) -> c_int>("cuDevicePrimaryCtxRelease_v2", |f| f(0));
            self.call::<extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int>("cuDevicePrimaryCtxGetState", |f| {
                f(0, &mut flags, &mut is_active)
            });
        }
        is_active != 0
    }

    /// GPU memory.
    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: as in `new`.
        unsafe {
            self.call::<extern "C" fn(*mut u64, usize) -> c_int>("cuMemAlloc_v2", |f| f(&mut address, bytes));
        }
        address
    }

    /// Frees what `alloc` gave.
    pub(crate) fn free(&self, address: u64) {
        // SAFETY: as in `new`.
        unsafe { self.call::<extern "C" fn(u64) -> c_int>("cuMemFree_v2", |f| f(address)) }
    }

    /// Fills GPU memory with zeros.
    pub(crate) fn clear(&self, address: u64, len: usize) {
        // SAFETY: as in `new`.
        unsafe {
            self.call::<extern "C" fn(u64, u8, usize) -> c_int>("cuMemsetD8_v2", |f| f(address, 0, len));
            self.call::<extern "C" fn() -> c_int>("cuCtxSynchronize", |f| f());
        }
    }

    /// CUDA's own view of `len` bytes of GPU memory.
    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; len];
        // SAFETY: as in `new`; the host range is `bytes`.
        unsafe {
            self.call::<extern "C" fn(*mut u8, u64, usize) -> c_int>("cuMemcpyDtoH_v2", |f| {
                f(bytes.as_mut_ptr(), address, len)
            });
        }
        bytes
    }

    /// Has CUDA write GPU memory.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: as in `read`.
        unsafe {
            self.call::<extern "C" fn(u64, *const u8, usize) -> c_int>("cuMemcpyHtoD_v2", |f| {
                f(address, bytes.as_ptr(), bytes.len())
            });
            // A small copy may return before the data has arrived.
            self.call::<extern "C" fn() -> c_int>("cuCtxSynchronize", |f| f());
        }
    }

    /// # Safety
    /// `F` is the function's type, and `call` passes it what it may be passed.
    pub(crate) unsafe fn call<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_int) {
        // SAFETY: the caller vouches for the type.
        let function = unsafe { self.0.get::<F>(name) }.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(call(*function), 0, "{name}");
    }
}
