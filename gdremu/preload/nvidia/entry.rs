//! The common start of all replaced functions of libcuda.
#![forbid(unsafe_code)]

use gdremu_core::gpu::nvidia::cuda::{Cuda, Status};

use crate::state;

/// CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
const NO_LIBCUDA: Status = 303;

/// Runs a replaced function with the real ones, unless a fault is due (`--fault`).
pub(crate) fn call(name: &str, body: impl FnOnce(&'static Cuda) -> Result<(), Status>) -> Status {
    let mut process = state::enter();
    // The lock is held, because only then does our dlsym find the real functions.
    let cuda = Cuda::get();
    let fault = process.as_mut().and_then(|process| process.faults.take(name));
    drop(process);
    let result = match (fault, cuda) {
        (Some(fault), _) => Err(fault.0 as Status),
        (None, None) => Err(NO_LIBCUDA),
        (None, Some(cuda)) => body(cuda),
    };
    result.err().unwrap_or(0)
}
