//! The GPU's side: a kernel that plays until it has played all rounds, or is told to stop.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context, Result};
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

use super::board::Board;
use crate::cuda::{CudaError, Gpu, functions};

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

/// The text that the driver compiles.
const PTX: &str = include_str!("kernel.ptx");

/// CUDA_ERROR_NOT_READY.
const NOT_READY: c_int = 600;

/// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE.
const TOO_LARGE: c_int = 720;

/// The kernel, ready to be launched.
#[derive(Debug)]
pub(super) struct Kernel {
    gpu: &'static Gpu,
    functions: Functions,
    function: CUfunction,
}

/// How a launch plays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) rounds: u32,
    pub(super) gpu_produces: bool,
}

/// A launch; dropping it stops the kernel and waits for its end.
#[derive(Debug)]
pub(super) struct Running<'a> {
    kernel: &'a Kernel,
    board: &'a Board<'a>,
}

/// The kernel's parameters, in order.
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

impl Kernel {
    /// Has the driver compile the kernel.
    ///
    /// # Errors
    /// The driver refuses.
    pub(super) fn load(gpu: &'static Gpu) -> Result<Kernel> {
        let driver = gpu.driver();
        let functions = Functions::of(driver)?;
        let text = CString::new(PTX)?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the text ends with a NUL, the results are local variables. The module is never
        // unloaded.
        unsafe {
            let loaded = (functions.load)(&mut module, text.as_ptr().cast());
            driver
                .check("cuModuleLoadData", loaded)
                .context("the GPU cannot run pplat's kernel, which takes compute capability 7.0")?;
            let found = (functions.function)(&mut function, module, c"ping_pong".as_ptr());
            driver.check("cuModuleGetFunction", found)?;
        }
        Ok(Kernel {
            gpu,
            functions,
            function,
        })
    }

    /// Starts to play.
    ///
    /// # Errors
    /// The driver refuses.
    pub(super) fn launch<'a>(&'a self, board: &'a Board<'a>, play: Play) -> Result<Running<'a>> {
        let mut parameters = Parameters {
            request: board.request_on_gpu(),
            answer: board.answer_on_gpu(),
            data: board.data_on_gpu(),
            stop: board.stop_on_gpu(),
            counters: board.counters_on_gpu(),
            words: board.words(),
            last_mask: board.last_mask(),
            rounds: play.rounds,
            produces: play.gpu_produces.into(),
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
        let (blocks, threads) = (play.blocks, play.threads);
        let default_stream = ptr::null_mut();
        // SAFETY: as many places as the kernel has parameters, each with a value of its type; what
        // the values name outlives the launch, which borrows the board.
        let result = unsafe {
            (self.functions.launch)(
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                default_stream,
                places.as_mut_ptr(),
            )
        };
        let launched = self.gpu.driver().check("cuLaunchCooperativeKernel", result);
        if result == TOO_LARGE {
            launched
                .context("not all blocks fit on the GPU side by side; take a smaller -B or -T")?;
        } else {
            launched?;
        }
        Ok(Running {
            kernel: self,
            board,
        })
    }
}

impl Running<'_> {
    /// Looks whether all is well.
    ///
    /// # Errors
    /// The kernel has failed.
    pub(super) fn check(&self) -> Result<(), CudaError> {
        // SAFETY: the default stream.
        match unsafe { (self.kernel.functions.query)(ptr::null_mut()) } {
            NOT_READY => Ok(()),
            result => self.kernel.gpu.driver().check("cuStreamQuery", result),
        }
    }

    /// Waits until the kernel has played all rounds.
    ///
    /// # Errors
    /// It has failed.
    pub(super) fn finish(self) -> Result<(), CudaError> {
        self.kernel.gpu.synchronize()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.board.stop();
        // What went wrong has been told where it was noticed.
        let _ = self.kernel.gpu.synchronize();
    }
}
