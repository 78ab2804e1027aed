//! cuGetProcAddress, which finds functions by name and CUDA version.
#![forbid(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use gdremu_core::cuda::name_of;

use super::entry_points;
use crate::args::{In, Out};
use crate::error::{Error, Result, ensure};
use crate::gpus;
use crate::state as process;

/// Values of CUdriverProcAddressQueryResult.
pub(super) const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// Flags that choose functions for the legacy or the per-thread default stream. gdremu has the same functions for both.
const FLAGS: u64 = 0x3;

/// Stores the newest function of this name that CUDA `version` has, or NULL. Returns a CUdriverProcAddressQueryResult.
pub(super) fn query(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64) -> Result<u32> {
    function.check()?;
    ensure((0..=gpus::config().cuda_version as i32).contains(&version), Error::INVALID_VALUE)?;
    ensure(flags & !FLAGS == 0, Error::INVALID_VALUE)?;
    let name = name.text()?;
    let mut status = NOT_FOUND;
    let mut newest = ptr::null();
    for known in entry_points::FUNCTIONS {
        if name_of(known.symbol) != name {
            continue;
        }
        if known.since <= version as u32 {
            status = FOUND;
            newest = known.address;
        } else if status == NOT_FOUND {
            status = VERSION_NOT_SUFFICIENT;
        }
    }
    if status == NOT_FOUND && process::lock().config.log_missing {
        eprintln!("gdremu: cuGetProcAddress: the stand-in libcuda has no \"{name}\"");
    }
    function.set(newest)?;
    Ok(status)
}

/// Fails, so NVIDIA's CUDA runtime finds no GPU (`gdremu/README.md` says why). Other libraries that look this function
/// up do not call it.
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
