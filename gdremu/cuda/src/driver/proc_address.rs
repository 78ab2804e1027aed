//! cuGetProcAddress: functions by name and CUDA version.

use std::ffi::{c_char, c_void};
use std::ptr;

use gdremu_core::cuda::{self, Missing};

use super::entry_points;
use crate::args::{In, Out};
use crate::error::{Error, Result};
use crate::gpus;
use crate::state as process;

/// CUdriverProcAddressQueryResult.
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// Flags: legacy or per-thread default stream, which are the same here.
const FLAGS: u64 = 0x3;

/// Only NVIDIA's CUDA runtime asks for this one, and it gives up without it: see [`super::runtime`].
const PRIVATE_TABLES: &str = "cuGetExportTable";

/// The newest function of this name that CUDA `version` has.
fn look_up(name: &str, version: u32) -> std::result::Result<*const c_void, u32> {
    match cuda::newest(name, version) {
        Ok(function) => {
            Ok(entry_points::address(function.symbol).expect("every function is exported"))
        }
        Err(Missing::Version) => Err(VERSION_NOT_SUFFICIENT),
        Err(Missing::Name) => {
            if name == PRIVATE_TABLES {
                eprintln!(
                    "gdremu: NVIDIA's CUDA runtime is linked into the program and will find no GPU: \
                     link it dynamically (nvcc -cudart shared)"
                );
            }
            if process::lock().config.log_missing {
                eprintln!("gdremu: cuGetProcAddress: the stand-in libcuda has no \"{name}\"");
            }
            Err(NOT_FOUND)
        }
    }
}

/// Looks a function up for the caller and says what became of it.
fn query(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64) -> Result<u32> {
    function.check()?;
    let driver = gpus::config().cuda_version;
    let version = u32::try_from(version).ok().filter(|&version| version <= driver);
    let version = version.ok_or(Error::INVALID_VALUE)?;
    if flags & !FLAGS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let (address, status) = match look_up(name.text()?, version) {
        Ok(address) => (address, FOUND),
        Err(status) => (ptr::null(), status),
    };
    function.set(address)?;
    Ok(status)
}

/// The form of CUDA 11.3, which does not report why a function is missing.
pub(super) fn cuGetProcAddress(
    name: In<c_char>,
    function: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Result {
    match query(name, function, version, flags)? {
        FOUND => Ok(()),
        _ => Err(Error::NOT_FOUND),
    }
}

/// Succeeds with NULL and a status where there is no such function.
pub(super) fn cuGetProcAddress_v2(
    name: In<c_char>,
    function: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> Result {
    status.set_if_wanted(query(name, function, version, flags)?);
    Ok(())
}
