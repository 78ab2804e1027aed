//! The GPU's side of the ping-pong: a GPU kernel that answers all rounds, unless it is stopped.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context, Result};
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

use super::buffers::Buffers;
use super::options::{Exchange, Options};
use crate::cuda::driver::functions;
use crate::cuda::{CudaError, Gpu};

functions! {
    struct Functions {
        load: c"cuModuleLoadData" (module: *mut CUmodule, image: *const c_void);
        function: c"cuModuleGetFunction" (function: *mut CUfunction, module: CUmodule, name: *const c_char);
        launch: c"cuLaunchCooperativeKernel" (
            function: CUfunction,
            blocks: c_uint, blocks_y: c_uint, blocks_z: c_uint, threads: c_uint, threads_y: c_uint, threads_z: c_uint,
            shared_memory: c_uint,
            stream: CUstream,
            parameters: *mut *mut c_void,
        );
        query: c"cuStreamQuery" (stream: CUstream);
    }
}

/// The source of the GPU kernel, which the driver compiles.
const PTX: &str = include_str!("kernel.ptx");

const NOT_READY: c_int = 600;

/// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE.
const TOO_LARGE: c_int = 720;

#[derive(Debug)]
pub(super) struct GpuKernel {
    gpu: &'static Gpu,
    functions: &'static Functions,
    function: CUfunction,
}

/// A running GPU kernel. Dropping this stops the GPU kernel and waits for its end.
#[derive(Debug)]
pub(super) struct Running<'a> {
    kernel: &'a GpuKernel,
    buffers: &'a Buffers<'a>,
}

impl GpuKernel {
    pub(super) fn load(gpu: &'static Gpu) -> Result<GpuKernel> {
        let functions = Functions::get()?;
        let text = CString::new(PTX)?;
        let mut module = ptr::null_mut();
        let mut function = ptr::null_mut();
        // SAFETY: the text ends with a NUL, the results are local variables. The module is never
        // unloaded.
        unsafe {
            functions
                .load(&mut module, text.as_ptr().cast())
                .context("the GPU cannot run the GPU kernel of pplat, which needs compute capability 7.0")?;
            functions.function(&mut function, module, c"ping_pong".as_ptr())?;
        }
        Ok(GpuKernel { gpu, functions, function })
    }

    /// Launches the GPU kernel for this number of rounds.
    pub(super) fn launch<'a>(
        &'a self,
        buffers: &'a Buffers<'a>,
        options: &Options,
        rounds: u32,
    ) -> Result<Running<'a>> {
        let addresses = buffers.addresses();
        let [words, last_mask] = buffers.words();
        let numbers = [words, last_mask, rounds, options.exchange.mode as u32];
        // These point to the parameters of the GPU kernel, in the order that kernel.ptx declares.
        let mut parameters: Vec<*mut c_void> = Vec::new();
        for address in &addresses {
            parameters.push(ptr::from_ref(address).cast_mut().cast());
        }
        for number in &numbers {
            parameters.push(ptr::from_ref(number).cast_mut().cast());
        }
        let default_stream = ptr::null_mut();
        let Exchange { blocks, threads, .. } = options.exchange;
        // SAFETY: there is one pointer per parameter of the GPU kernel, each to a value of its type. CUDA reads the
        // values before it returns. `Running` borrows the buffers, so the memory that the values refer to outlives the
        // launch.
        let launched = unsafe {
            let parameters = parameters.as_mut_ptr();
            self.functions.launch(self.function, blocks, 1, 1, threads, 1, 1, 0, default_stream, parameters)
        };
        match launched {
            Err(error) if error.code == TOO_LARGE => {
                Err(error).context("not all blocks fit on the GPU at the same time; use a smaller -B or -T")?
            }
            launched => launched?,
        }
        Ok(Running { kernel: self, buffers })
    }
}

impl Running<'_> {
    pub(super) fn check(&self) -> Result<(), CudaError> {
        // SAFETY: NULL is the default stream, which always exists.
        match unsafe { self.kernel.functions.query(ptr::null_mut()) } {
            Err(error) if error.code == NOT_READY => Ok(()),
            result => result,
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
        // Errors are ignored, because `drop` cannot return them. `check` and `finish` return those of the GPU kernel.
        let _ = self.kernel.gpu.synchronize();
    }
}
