//! Launches of GPU kernels.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use gdremu_ptx::{self as ptx, Kernel, Launch, Stopped, Trap};

use super::device;
use super::kernel_memory::KernelMemory;
use super::state::{self, Current, Function, FunctionHandle, State, StreamHandle};
use super::work::Turn;
use crate::args::In;
use crate::error::{Error, Result, ensure};
use crate::refused;

/// The most blocks of a grid, by dimension. This limit and the next three must agree with the attributes in device.rs.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The maximum number of threads in a block, by dimension.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The maximum number of threads in a block, in all dimensions together.
const MAX_BLOCK_THREADS: u64 = 1024;
/// The maximum size in bytes of the shared memory of a block.
const MAX_SHARED_BYTES: usize = 48 << 10;

/// The most warps and blocks that run on a multiprocessor at once, and the bytes of shared memory that they share.
const MULTIPROCESSOR_WARPS: u64 = 64;
const MULTIPROCESSOR_BLOCKS: u64 = 32;
const MULTIPROCESSOR_SHARED: usize = 228 << 10;
/// The shared memory of a block takes up a multiple of `SHARED_UNIT` bytes, plus `BLOCK_RESERVED` bytes.
const SHARED_UNIT: usize = 128;
const BLOCK_RESERVED: usize = 1 << 10;

const MULTIPROCESSORS: u64 = 132;

const WARP: i32 = 32;

/// When the GPU kernels of a process have run for this long in total, gdremu reports it.
const LONG: Duration = Duration::from_secs(10);

/// The arguments of a launch besides the GPU kernel and its parameters.
pub(super) struct Request {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) stream: StreamHandle,
    /// True if all blocks must run at the same time.
    pub(super) cooperative: bool,
}

impl Request {
    fn resident(&self, kernel: &Kernel) -> Result<u64> {
        let blocks = product(self.grid, MAX_GRID)?;
        let threads = product(self.block, MAX_BLOCK)?;
        let at_once = blocks_at_once(kernel, threads, self.shared_bytes as usize);
        ensure(at_once > 0, Error::INVALID_VALUE)?;
        let resident = MULTIPROCESSORS * at_once;
        ensure(!self.cooperative || blocks <= resident, Error::COOPERATIVE_LAUNCH_TOO_LARGE)?;
        Ok(resident)
    }
}

fn product(sizes: [u32; 3], limits: [u32; 3]) -> Result<u64> {
    let mut product = 1;
    for axis in 0..3 {
        ensure((1..=limits[axis]).contains(&sizes[axis]), Error::INVALID_VALUE)?;
        product *= u64::from(sizes[axis]);
    }
    Ok(product)
}

pub(crate) fn max_threads(kernel: &Kernel) -> u64 {
    kernel.max_threads.unwrap_or(MAX_BLOCK_THREADS).min(MAX_BLOCK_THREADS)
}

/// Returns the number of blocks of `threads` threads that a multiprocessor runs at once. `shared_bytes` is the dynamic
/// shared memory of a block, in addition to the static one.
fn blocks_at_once(kernel: &Kernel, threads: u64, shared_bytes: usize) -> u64 {
    let shared = kernel.shared.saturating_add(shared_bytes);
    if threads > max_threads(kernel) || shared > MAX_SHARED_BYTES {
        return 0;
    }
    let by_shared = MULTIPROCESSOR_SHARED / (shared.next_multiple_of(SHARED_UNIT) + BLOCK_RESERVED);
    let by_warps = MULTIPROCESSOR_WARPS / threads.div_ceil(32);
    by_warps.min(by_shared as u64).min(MULTIPROCESSOR_BLOCKS)
}

/// Reads the values of the parameters through an array of pointers. Returns them in one block of memory, each at the
/// offset at which the GPU kernel reads it.
fn parameters(kernel: &Kernel, pointers: In<In<u8>>) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    for (index, &(offset, size)) in kernel.parameters.iter().enumerate() {
        memory.resize(offset, 0);
        memory.extend_from_slice(pointers.at(index)?.bytes(size)?);
    }
    Ok(memory)
}

/// Returns the name that a GPU kernel has in its C++ source.
fn demangled(name: &str) -> String {
    if let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(demangled) = symbol.demangle()
    {
        return demangled;
    }
    name.to_owned()
}

pub(crate) fn refuse(name: &str, why: &str) {
    refused::kernel(&demangled(name), why);
}

/// Launches a GPU kernel. Refuses `extra`, by which a program can pass all parameters in one buffer.
pub(super) fn launch(function: FunctionHandle, request: Request, pointers: In<In<u8>>, extra: In<In<u8>>) -> Result {
    let function = {
        let state = state::lock();
        state.current()?;
        state.functions.get(function)?.clone()
    };
    let kernel = function.kernel.map_err(|why| {
        refuse(&function.name, &why);
        Error::NO_BINARY_FOR_GPU
    })?;
    let resident = request.resident(&kernel)?;
    if !extra.is_null() {
        refuse(&function.name, "parameters in one buffer are not supported");
        return Err(Error::NOT_SUPPORTED);
    }
    let launch = Launch {
        parameters: parameters(&kernel, pointers)?,
        kernel,
        grid: request.grid,
        block: request.block,
        resident,
        cooperative: request.cooperative,
        shared: request.shared_bytes as usize,
        variables: function.variables,
    };
    let turn = Turn::of(request.stream)?;
    ensure(turn.queue.context == function.context, Error::INVALID_HANDLE)?;
    let live = turn.state.contexts.get(function.context)?;
    let stop = Arc::clone(&live.stop);
    let gpu = live.gpu;
    turn.enqueue(None, move || {
        let started = Instant::now();
        let mut memory = KernelMemory::new(gpu);
        let result = ptx::run(&launch, &mut memory, &stop, || report_long_run(&launch.kernel, started));
        WORKED.fetch_add(started.elapsed().as_millis() as u64, Ordering::Relaxed);
        result.map_err(|stopped| log_stopped(&launch.kernel, stopped))
    })?;
    Ok(())
}

/// The total run time of this process's ended GPU kernels, in milliseconds.
static WORKED: AtomicU64 = AtomicU64::new(0);

/// Reports once per process that GPU kernels have run for a long time, and the name of the running one.
fn report_long_run(kernel: &Kernel, started: Instant) {
    static REPORTED: AtomicBool = AtomicBool::new(false);

    let worked = Duration::from_millis(WORKED.load(Ordering::Relaxed)) + started.elapsed();
    if worked >= LONG && !REPORTED.swap(true, Ordering::Relaxed) {
        let seconds = LONG.as_secs();
        let name = demangled(&kernel.name);
        eprintln!("gdremu: GPU kernels have run for {seconds} s, interpreted; GPU kernel {name} is running");
    }
}

fn log_stopped(kernel: &Kernel, stopped: Stopped) -> Error {
    let (reason, error) = match stopped.trap {
        Trap::IllegalAddress(address) => (format!("it may not access {address:#x}"), Error::ILLEGAL_ADDRESS),
        Trap::MisalignedAddress(address) => {
            (format!("{address:#x} is not a multiple of the size of the access"), Error::MISALIGNED_ADDRESS)
        }
        Trap::Explicit => ("it executed trap".to_owned(), Error::LAUNCH_FAILED),
    };
    let name = demangled(&kernel.name);
    let Stopped { line, thread, block, .. } = stopped;
    eprintln!("gdremu: GPU kernel {name}, PTX line {line}, thread {thread} of block {block}: {reason}");
    error
}

/// Returns the value of a CUfunction_attribute. A GPU kernel that gdremu cannot run has the values of an empty one.
pub(super) fn cuFuncGetAttribute(
    state: &State,
    current: Current,
    attribute: i32,
    function: FunctionHandle,
) -> Result<i32> {
    let function = state.functions.get(function)?;
    let kernel = kernel_of(function);
    Ok(match attribute {
        0 => max_threads(kernel) as i32,
        1 => kernel.shared as i32,
        2 => 0, // bytes of constant memory
        3 => kernel.local as i32,
        4 => 32, // registers per thread
        5 => function.target as i32,
        6 => device::capability(current.gpu)? as i32, // binary version
        7 => 0,                                       // cache mode
        8 => MAX_SHARED_BYTES.saturating_sub(kernel.shared) as i32,
        _ => return Err(Error::INVALID_VALUE),
    })
}

fn kernel_of(function: &Function) -> &Kernel {
    static UNKNOWN: LazyLock<Kernel> = LazyLock::new(Kernel::default);
    function.kernel.as_deref().unwrap_or(&UNKNOWN)
}

pub(super) fn active_blocks(state: &State, function: FunctionHandle, threads: i32, shared_bytes: usize) -> Result<i32> {
    ensure(threads > 0, Error::INVALID_VALUE)?;
    let kernel = kernel_of(state.functions.get(function)?);
    Ok(blocks_at_once(kernel, threads as u64, shared_bytes) as i32)
}

/// A function of the program. It returns how many bytes of shared memory a block of the given number of threads needs.
pub(super) type SharedBytes = Option<extern "C" fn(i32) -> usize>;

/// Returns the numbers of blocks and of threads per block with which the GPU runs the most threads at once. If several
/// sizes are equally good, takes the largest block. `limit` is the most threads of a block; 0 means no limit.
pub(super) fn best_block(
    function: FunctionHandle,
    shared_of: SharedBytes,
    shared_bytes: usize,
    limit: i32,
) -> Result<(i32, i32)> {
    let function = state::lock().functions.get(function)?.clone();
    let kernel = kernel_of(&function);
    let most = max_threads(kernel) as i32;
    let mut threads = if limit > 0 { most.min(limit) } else { most };
    let mut best = (0, 0);
    while threads > 0 {
        let shared_bytes = shared_of.map_or(shared_bytes, |shared_of| shared_of(threads));
        let blocks = blocks_at_once(kernel, threads as u64, shared_bytes) as i32;
        if blocks * threads > best.0 * best.1 {
            best = (blocks, threads);
        }
        threads = (threads - 1) / WARP * WARP;
    }
    Ok((best.0 * MULTIPROCESSORS as i32, best.1))
}
