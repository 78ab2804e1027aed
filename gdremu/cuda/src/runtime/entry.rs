//! Runs the bodies of the runtime's functions. For some, it first initializes the driver or makes a context current.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use super::errors;
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuCtxGetDevice, cuCtxSetCurrent, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain, cuInit,
};
use crate::error::{Error, Result, lock};
use crate::gpus;

thread_local! {
    pub(super) static GPU: Cell<i32> = const { Cell::new(0) };
}

static RETAINED: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

const CUDA_12: u32 = 12090;

/// Returns the CUDA version of the program's runtime, but at most the driver's version. The file name of the loaded
/// libcudart shows whether the runtime is that of CUDA 12.
pub(super) fn version() -> i32 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let driver = gpus::config().cuda_version;
    let is_12 = maps.contains("/libcudart.so.12") && !maps.contains("/libcudart.so.13");
    (if is_12 { driver.min(CUDA_12) } else { driver }) as i32
}

pub(crate) fn check(result: i32) -> Result {
    if result == 0 { Ok(()) } else { Err(Error(result)) }
}

/// Calls a function of the driver and returns the value that the function stores.
pub(crate) fn result_of<T: Copy + Default>(function: impl FnOnce(Out<T>) -> i32) -> Result<T> {
    let mut result = T::default();
    check(function(Out::to(&mut result)))?;
    Ok(result)
}

pub(crate) fn without_init(body: impl FnOnce() -> Result) -> i32 {
    match body() {
        Ok(()) => 0,
        Err(error) => errors::remember(error.0),
    }
}

pub(crate) fn initialized(body: impl FnOnce() -> Result) -> i32 {
    without_init(|| {
        check(cuInit(0))?;
        body()
    })
}

/// Runs `body` in the current context. If there is none, makes the primary context of the thread's GPU current.
pub(crate) fn in_context(body: impl FnOnce() -> Result) -> i32 {
    initialized(|| {
        if result_of(|gpu| cuCtxGetDevice(gpu)).is_err() {
            use_gpu(GPU.get())?;
        }
        body()
    })
}

/// Returns the primary context of a GPU. Retains the context if this library has not retained it.
pub(crate) fn primary(gpu: i32) -> Result<usize> {
    let mut retained = lock(&RETAINED);
    let active = result_of(|active| cuDevicePrimaryCtxGetState(gpu, Out::to(&mut 0), active))?;
    // If the context is not active, a reset has destroyed it. The next retain creates it again.
    if let Some(context) = retained.get(&gpu)
        && active != 0
    {
        return Ok(*context);
    }
    let context = result_of(|context| cuDevicePrimaryCtxRetain(context, gpu))?;
    retained.insert(gpu, context);
    Ok(context)
}

fn use_gpu(gpu: i32) -> Result {
    check(cuCtxSetCurrent(primary(gpu)?))
}

pub(super) fn set_device(gpu: i32) -> Result {
    use_gpu(gpu)?;
    GPU.set(gpu);
    Ok(())
}

pub(super) fn reset() -> Result {
    let result = check(cuDevicePrimaryCtxReset_v2(GPU.get()));
    if lock(&RETAINED).remove(&GPU.get()).is_some() {
        cuDevicePrimaryCtxRelease_v2(GPU.get());
    }
    result
}
