//! Launches of kernels.

use std::sync::Arc;

use gdremu::ptx::{self, Kernel, Launch, Stopped, Trap};

use super::args::In;
use super::entry::{current, initialised};
use super::error::{Error, Result};
use super::kernel_memory::KernelMemory;
use super::module::{BLOCK_THREADS, FunctionHandle};
use super::state::{self, State};
use super::stream::StreamHandle;
use super::work;

/// Threads in a block and blocks in a grid at most, by dimension.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// Threads that run side by side: multiprocessors, and the threads of each.
const RESIDENT_THREADS: u32 = 132 * 2048;

/// What the argument `extra` of a launch is made of.
const PARAMETER_BUFFER: usize = 1;
const PARAMETER_BUFFER_SIZE: usize = 2;

/// CUlaunchConfig.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: StreamHandle,
    attributes: usize,
    attribute_count: u32,
}

const _: () = assert!(size_of::<LaunchConfig>() == 56);

impl LaunchConfig {
    /// Without attributes.
    fn plain(grid: [u32; 3], block: [u32; 3], shared_bytes: u32, stream: StreamHandle) -> Self {
        LaunchConfig {
            grid,
            block,
            shared_bytes,
            stream,
            attributes: 0,
            attribute_count: 0,
        }
    }

    /// # Errors
    /// INVALID_VALUE: no GPU can do that; COOPERATIVE_LAUNCH_TOO_LARGE: not all of it side by side.
    fn check(&self, kernel: &Kernel, max_dynamic_shared: u32, cooperative: bool) -> Result {
        let fits = |sizes: [u32; 3], most: [u32; 3]| {
            std::iter::zip(sizes, most).all(|(size, most)| (1..=most).contains(&size))
        };
        let most = kernel
            .max_threads()
            .unwrap_or(BLOCK_THREADS)
            .min(BLOCK_THREADS);
        if !fits(self.grid, MAX_GRID)
            || !fits(self.block, MAX_BLOCK)
            || self.block.iter().product::<u32>() > most
            || self.shared_bytes > max_dynamic_shared
        {
            return Err(Error::INVALID_VALUE);
        }
        let sizes = self.grid.iter().chain(&self.block);
        let threads: u128 = sizes.map(|&size| u128::from(size)).product();
        if cooperative && threads > RESIDENT_THREADS.into() {
            return Err(Error::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }
}

/// The kernel behind a function, and the shared memory that a launch may add.
fn find(state: &State, function: FunctionHandle) -> Result<(Arc<Kernel>, u32, usize)> {
    let function = state.functions.get(function).ok_or(Error::INVALID_HANDLE)?;
    let kernel = Arc::clone(&function.kernel);
    Ok((kernel, function.max_dynamic_shared, function.context))
}

/// The parameters' memory, from an array of pointers to them or in one piece.
fn parameters(kernel: &Kernel, each: In<In<u8>>, extra: In<In<u8>>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; kernel.parameter_bytes()];
    if bytes.is_empty() {
        return Ok(bytes);
    }
    if extra.is_null() {
        for (index, parameter) in kernel.parameters().iter().enumerate() {
            let pointer = each.at(index)?;
            for offset in 0..parameter.len {
                bytes[parameter.offset + offset] = pointer.at(offset)?;
            }
        }
        return Ok(bytes);
    }
    let (mut buffer, mut len) = (None, 0);
    let mut index = 0;
    loop {
        match extra.at(index)?.number() {
            PARAMETER_BUFFER => buffer = Some(extra.at(index + 1)?),
            PARAMETER_BUFFER_SIZE => len = extra.at(index + 1)?.of::<usize>().get()?,
            0 => break,
            _ => return Err(Error::INVALID_VALUE),
        }
        index += 2;
    }
    let buffer = buffer.filter(|_| each.is_null());
    let buffer = buffer.ok_or(Error::INVALID_VALUE)?;
    // As NVIDIA's driver has it: what is missing is taken as it is, and more is refused, be it padding.
    let given = bytes.get_mut(..len).ok_or(Error::LAUNCH_OUT_OF_RESOURCES)?;
    for (offset, byte) in given.iter_mut().enumerate() {
        *byte = buffer.at(offset)?;
    }
    Ok(bytes)
}

fn launch(
    call: &str,
    function: FunctionHandle,
    config: LaunchConfig,
    cooperative: bool,
    each: In<In<u8>>,
    extra: In<In<u8>>,
) -> i32 {
    initialised(call, || {
        let (kernel, max_dynamic_shared, owner) = {
            let state = state::lock();
            current(&state)?;
            find(&state, function)?
        };
        config.check(&kernel, max_dynamic_shared, cooperative)?;
        let launch = Launch {
            parameters: parameters(&kernel, each, extra)?,
            kernel,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.shared_bytes,
            resident_threads: RESIDENT_THREADS,
        };
        let state = state::lock();
        let current = current(&state)?;
        work::check_stream(&state, current, config.stream)?;
        let context = work::context(&state, current, config.stream);
        let stop = match state.contexts.get(context) {
            Some(found) if context == owner => Arc::clone(&found.stop),
            _ => return Err(Error::INVALID_HANDLE),
        };
        let job = move || {
            ptx::run(&launch, &mut KernelMemory::default(), &stop)
                .map_err(|stopped| tell(&launch.kernel, stopped))
        };
        work::enqueue(state, current, config.stream, Vec::new(), job).map(|_| ())
    })
}

/// Says why a kernel was stopped, and the error that its context has from now on.
fn tell(kernel: &Kernel, stopped: Stopped) -> Error {
    let (what, error) = match stopped.trap {
        Trap::IllegalAddress(address) => {
            let what = format!("there is no memory for it at {address:#x}");
            (what, Error::ILLEGAL_ADDRESS)
        }
        Trap::MisalignedAddress(address) => {
            let what = format!("{address:#x} is no multiple of what it accesses");
            (what, Error::MISALIGNED_ADDRESS)
        }
        Trap::Instruction => ("trap".to_owned(), Error::LAUNCH_FAILED),
    };
    eprintln!(
        "gdremu: kernel {}, line {} of its module, thread {} of block {:?}: {what}",
        kernel.name(),
        stopped.line,
        stopped.thread,
        stopped.block,
    );
    error
}

pub(super) extern "C" fn cuLaunchKernel(
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
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let config = LaunchConfig::plain(grid, block, shared_bytes, stream);
    launch("cuLaunchKernel", function, config, false, parameters, extra)
}

/// Attributes of a launch change nothing here.
pub(super) extern "C" fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: FunctionHandle,
    parameters: In<In<u8>>,
    extra: In<In<u8>>,
) -> i32 {
    match config.get() {
        Ok(config) => launch(
            "cuLaunchKernelEx",
            function,
            config,
            false,
            parameters,
            extra,
        ),
        Err(error) => error.0,
    }
}

pub(super) extern "C" fn cuLaunchCooperativeKernel(
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
) -> i32 {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let config = LaunchConfig::plain(grid, block, shared_bytes, stream);
    launch(
        "cuLaunchCooperativeKernel",
        function,
        config,
        true,
        parameters,
        In::null(),
    )
}
