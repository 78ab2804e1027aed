//! The GPU's side, a GPU kernel that answers all rounds, unless it is stopped.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context, Result};
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

use super::buffers::Buffers;
use crate::cuda::driver::functions;
use crate::cuda::{CudaError, Gpu};

functions! {
    struct Functions {
        load: c"cuModuleLoadData" (*mut CUmodule, *const c_void);
        function: c"cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
        launch: c"cuLaunchCooperativeKernel" (
            CUfunction,
            c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
            CUstream,
            *mut *mut c_void,
        );
        query: c"cuStreamQuery" (CUstream);
    }
}

/// The driver compiles it.
const PTX: &str = include_str!("kernel.ptx");

/// CUDA_ERROR_NOT_READY.
const NOT_READY: c_int = 600;

/// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE.
const TOO_LARGE: c_int = 720;

/// The compiled GPU kernel.
#[derive(Debug)]
pub(super) struct GpuKernel {
    gpu: &'static Gpu,
    functions: &'static Functions,
    function: CUfunction,
}

/// The parameters of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) rounds: u32,
    pub(super) gpu_produces: bool,
}

/// A running GPU kernel; dropping it stops the kernel and waits for its end.
#[derive(Debug)]
pub(super) struct Running<'a> {
    kernel: &'a GpuKernel,
    buffers: &'a Buffers<'a>,
}

/// The parameters of kernel.ptx, in order.
#[repr(C)]
struct Parameters {
    request: u64,
    answer: u64,
    data: u64,
    stop: u64,
    counters: u64,
    words: u32,
    last_mask: u32,
    rounds: u32,
    produces: u32,
}

impl GpuKernel {
    /// Has the driver compile the GPU kernel.
    pub(super) fn load(gpu: &'static Gpu) -> Result<GpuKernel> {
        let driver = gpu.driver();
        let functions = Functions::get(driver)?;
        let text = CString::new(PTX)?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the text ends with a NUL, the results are local variables. The module is never
        // unloaded.
        unsafe {
            let loaded = (functions.load)(&mut module, text.as_ptr().cast());
            driver
                .check("cuModuleLoadData", loaded)
                .context("the GPU cannot run the GPU kernel of pplat, which needs compute capability 7.0")?;
            let found = (functions.function)(&mut function, module, c"ping_pong".as_ptr());
            driver.check("cuModuleGetFunction", found)?;
        }
        Ok(GpuKernel { gpu, functions, function })
    }

    /// Starts to launch.
    pub(super) fn launch<'a>(&'a self, buffers: &'a Buffers<'a>, launch: Launch) -> Result<Running<'a>> {
        let mut parameters = Parameters {
            request: buffers.request_on_gpu(),
            answer: buffers.answer_on_gpu(),
            data: buffers.data_on_gpu(),
            stop: buffers.stop_on_gpu(),
            counters: buffers.counters_on_gpu(),
            words: buffers.words(),
            last_mask: buffers.last_mask(),
            rounds: launch.rounds,
            produces: launch.gpu_produces.into(),
        };
        let mut places: [*mut c_void; 9] = [
            (&raw mut parameters.request).cast(),
            (&raw mut parameters.answer).cast(),
            (&raw mut parameters.data).cast(),
            (&raw mut parameters.stop).cast(),
            (&raw mut parameters.counters).cast(),
            (&raw mut parameters.words).cast(),
            (&raw mut parameters.last_mask).cast(),
            (&raw mut parameters.rounds).cast(),
            (&raw mut parameters.produces).cast(),
        ];
        let (blocks, threads) = (launch.blocks, launch.threads);
        let default_stream = ptr::null_mut();
        // SAFETY: one pointer per parameter of the GPU kernel, each to a value of its type. The memory
        // that the values refer to outlives the launch, which borrows the buffers.
        let result = unsafe {
            (self.functions.launch)(self.function, blocks, 1, 1, threads, 1, 1, 0, default_stream, places.as_mut_ptr())
        };
        let launched = self.gpu.driver().check("cuLaunchCooperativeKernel", result);
        if result == TOO_LARGE {
            launched.context("not all blocks fit on the GPU at the same time; use a smaller -B or -T")?;
        } else {
            launched?;
        }
        Ok(Running { kernel: self, buffers })
    }
}

impl Running<'_> {
    /// Fails if the GPU kernel has failed.
    pub(super) fn check(&self) -> Result<(), CudaError> {
        // SAFETY: the default stream.
        match unsafe { (self.kernel.functions.query)(ptr::null_mut()) } {
            NOT_READY => Ok(()),
            result => self.kernel.gpu.driver().check("cuStreamQuery", result),
        }
    }

    /// Waits until the GPU kernel has answered all rounds.
    pub(super) fn finish(self) -> Result<(), CudaError> {
        self.kernel.gpu.synchronize()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.buffers.stop();
        // Errors were reported where they were noticed.
        let _ = self.kernel.gpu.synchronize();
    }
}
