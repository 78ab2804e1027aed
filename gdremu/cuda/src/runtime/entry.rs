//! The beginnings of the runtime's functions, with the driver initialized, or in the context of the
//! thread's GPU.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};

use super::errors;
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuCtxGetDevice, cuCtxSetCurrent, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain, cuInit,
};
use crate::error::{Error, Result};
use crate::gpus;

thread_local! {
    pub(super) static GPU: Cell<i32> = const { Cell::new(0) };
}

/// The primary contexts that the runtime has retained, by GPU.
static RETAINED: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

/// The last runtime of CUDA 12.
const CUDA_12: u32 = 12090;

/// The CUDA version of the program's runtime, by the name of the loaded library; not newer than the driver.
pub(super) fn version() -> i32 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let driver = gpus::config().cuda_version;
    let is_12 = maps.contains("/libcudart.so.12") && !maps.contains("/libcudart.so.13");
    (if is_12 { driver.min(CUDA_12) } else { driver }) as i32
}

/// Turns a result of the driver into a Rust one.
pub(crate) fn check(result: i32) -> Result {
    if result == 0 { Ok(()) } else { Err(Error(result)) }
}

/// Runs a function that needs nothing; remembers its error.
pub(crate) fn without_init(body: impl FnOnce() -> Result) -> i32 {
    body().map_or_else(|error| errors::remember(error.0), |()| 0)
}

/// Runs a function that needs the driver.
pub(crate) fn initialized(body: impl FnOnce() -> Result) -> i32 {
    without_init(|| {
        check(cuInit(0))?;
        body()
    })
}

/// Runs a function in the context of the thread's GPU, or in the one that the program has made current.
pub(crate) fn in_context(body: impl FnOnce() -> Result) -> i32 {
    initialized(|| {
        let mut gpu = 0;
        if cuCtxGetDevice(Out::to(&mut gpu)) != 0 {
            use_gpu(GPU.get())?;
        }
        body()
    })
}

/// The primary context of a GPU, retained.
pub(crate) fn primary(gpu: i32) -> Result<usize> {
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut flags = 0;
    let mut active = 0;
    check(cuDevicePrimaryCtxGetState(gpu, Out::to(&mut flags), Out::to(&mut active)))?;
    // A reset destroys the context, and the next retain creates it again.
    if let Some(context) = retained.get(&gpu).filter(|_| active != 0) {
        return Ok(*context);
    }
    let mut context = 0;
    check(cuDevicePrimaryCtxRetain(Out::to(&mut context), gpu))?;
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
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if retained.remove(&GPU.get()).is_some() {
        cuDevicePrimaryCtxRelease_v2(GPU.get());
    }
    result
}
