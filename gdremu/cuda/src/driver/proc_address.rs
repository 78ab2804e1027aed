//! cuGetProcAddress: functions by name and CUDA version.
#![forbid(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use gdremu_core::cuda::{self, Missing};

use super::entry_points;
use crate::args::{In, Out};
use crate::error::{Error, Result, ensure};
use crate::gpus;
use crate::state as process;

/// CUdriverProcAddressQueryResult.
pub(super) const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// Flags: legacy or per-thread default stream, which are the same here.
const FLAGS: u64 = 0x3;

/// Stores the newest function of this name that CUDA `version` has, or NULL. Returns which of both it was.
pub(super) fn query(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64) -> Result<u32> {
    function.check()?;
    ensure((0..=gpus::config().cuda_version as i32).contains(&version), Error::INVALID_VALUE)?;
    ensure(flags & !FLAGS == 0, Error::INVALID_VALUE)?;
    let name = name.text()?;
    let status = match cuda::newest(entry_points::FUNCTIONS, name, version as u32) {
        Ok(newest) => {
            function.set(newest.address)?;
            return Ok(FOUND);
        }
        Err(Missing::Version) => VERSION_NOT_SUFFICIENT,
        Err(Missing::Name) => NOT_FOUND,
    };
    if status == NOT_FOUND && process::lock().config.log_missing {
        eprintln!("gdremu: cuGetProcAddress: the stand-in libcuda has no \"{name}\"");
    }
    function.set(ptr::null())?;
    Ok(status)
}

/// Only NVIDIA's CUDA runtime calls this one, and it gives up without it (see [`crate::runtime`]). Others look it up.
pub(super) fn cuGetExportTable(_table: Out<*const c_void>, _uuid: In<u8>) -> Result {
    static SAID: AtomicBool = AtomicBool::new(false);

    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "gdremu: NVIDIA's CUDA runtime, which is linked into the program or a library of it, finds no GPU: \
             link it dynamically (nvcc -cudart shared)"
        );
    }
    Err(Error::NOT_SUPPORTED)
}
