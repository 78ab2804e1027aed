//! Launches of GPU kernels.
#![forbid(unsafe_code)]

use std::iter;
use std::sync::Arc;

use crate::ptx::{self, Kernel, Launch, Stopped, Trap, Width};

use super::kernel_memory::KernelMemory;
use super::state::{self, FunctionHandle, StreamHandle};
use super::work;
use crate::args::In;
use crate::error::{Error, Result};
use crate::refused;

/// Limits of the GPU attributes: blocks of a grid and threads of a block by dimension, threads of a
/// block in total, bytes of shared memory that a launch may add.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_BLOCK_THREADS: u64 = 1024;
const MAX_SHARED_BYTES: u32 = 48 << 10;

/// Threads that a GPU runs at the same time: its multiprocessors times the threads of each.
const RESIDENT_THREADS: u64 = 132 * 2048;

/// The arguments of a launch besides the GPU kernel and its parameters.
struct Request {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: StreamHandle,
    /// All blocks must run at the same time.
    cooperative: bool,
}

impl Request {
    /// # Errors
    /// INVALID_VALUE: no GPU can do that. COOPERATIVE_LAUNCH_TOO_LARGE. NOT_SUPPORTED: more than the
    /// interpreter can do.
    fn check(&self, kernel: &str) -> Result {
        let fits = |sizes: [u32; 3], limits: [u32; 3]| {
            iter::zip(sizes, limits).all(|(size, limit)| (1..=limit).contains(&size))
        };
        let product = |sizes: [u32; 3]| sizes.iter().map(|&size| u64::from(size)).product::<u64>();
        if !fits(self.grid, MAX_GRID)
            || !fits(self.block, MAX_BLOCK)
            || product(self.block) > MAX_BLOCK_THREADS
            || self.shared_bytes > MAX_SHARED_BYTES
        {
            return Err(Error::INVALID_VALUE);
        }
        let one_dimension = self.grid[1..] == [1, 1] && self.block[1..] == [1, 1];
        let resident = product(self.block).saturating_mul(product(self.grid)) <= RESIDENT_THREADS;
        if !resident && self.cooperative {
            return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        if !resident || !one_dimension {
            let limit = format!("one dimension and at most {RESIDENT_THREADS} threads");
            refused::kernel(kernel, &format!("gdremu supports {limit}"));
            return Err(Error::NOT_SUPPORTED);
        }
        Ok(())
    }
}

/// The value of each parameter, from an array of pointers to them.
fn parameters(kernel: &Kernel, pointers: In<In<u8>>) -> Result<Vec<u64>> {
    let value = |(index, width): (usize, &Width)| {
        let pointer = pointers.at(index)?;
        match width {
            Width::U32 => Ok(pointer.of::<u32>().get()?.into()),
            Width::U64 => pointer.of::<u64>().get(),
        }
    };
    kernel.parameters().iter().enumerate().map(value).collect()
}

fn launch(function: FunctionHandle, request: Request, pointers: In<In<u8>>) -> Result {
    let (kernel, owner) = {
        let state = state::lock();
        state.current()?;
        let function = state.functions.get(function).ok_or(Error::INVALID_HANDLE)?;
        (Arc::clone(&function.kernel), function.context)
    };
    request.check(kernel.name())?;
    let launch = Launch {
        parameters: parameters(&kernel, pointers)?,
        kernel,
        grid: request.grid[0],
        block: request.block[0],
    };
    let state = state::lock();
    let current = state.current()?;
    work::check_stream_and_context(&state, current, request.stream)?;
    let context = work::context(&state, current, request.stream);
    let stop = match state.contexts.get(context) {
        Some(found) if context == owner => Arc::clone(&found.stop),
        _ => return Err(Error::INVALID_HANDLE),
    };
    let job = move || {
        ptx::run(&launch, &mut KernelMemory::default(), &stop)
            .map_err(|stopped| log_stopped(&launch.kernel, stopped))
    };
    work::enqueue(state, current, request.stream, Vec::new(), job).map(|_| ())
}

/// Logs why a GPU kernel was stopped. Returns the error that its context has from now on.
fn log_stopped(kernel: &Kernel, stopped: Stopped) -> Error {
    let (reason, error) = match stopped.trap {
        Trap::IllegalAddress(address) => {
            let reason = format!("it may not access {address:#x}");
            (reason, Error::ILLEGAL_ADDRESS)
        }
        Trap::MisalignedAddress(address) => {
            let reason = format!("{address:#x} is not a multiple of 4");
            (reason, Error::MISALIGNED_ADDRESS)
        }
    };
    eprintln!(
        "gdremu: GPU kernel {}, PTX line {}, thread {} of block {}: {reason}",
        kernel.name(),
        stopped.line,
        stopped.thread,
        stopped.block,
    );
    error
}

/// `extra`, the other method of passing parameters, is not supported.
#[expect(clippy::too_many_arguments, reason = "CUDA's")]
pub(super) fn cuLaunchKernel(
    function: FunctionHandle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: StreamHandle,
    parameters: In<In<u8>>,
    extra: In<In<u8>>,
) -> Result {
    if !extra.is_null() {
        return Err(Error::NOT_SUPPORTED);
    }
    let request = Request {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
        stream,
        cooperative: false,
    };
    launch(function, request, parameters)
}

#[expect(clippy::too_many_arguments, reason = "CUDA's")]
pub(super) fn cuLaunchCooperativeKernel(
    function: FunctionHandle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: StreamHandle,
    parameters: In<In<u8>>,
) -> Result {
    let request = Request {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
        stream,
        cooperative: true,
    };
    launch(function, request, parameters)
}
