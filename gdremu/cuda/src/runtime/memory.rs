//! Allocations, copies and pointers, where the runtime differs from the driver.
#![forbid(unsafe_code)]

use super::entry::check;
use super::errors::INVALID_COPY_DIRECTION;
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuMemAlloc_v2, cuMemcpy, cuMemcpyAsync, cuPointerGetAttribute,
};
use crate::error::Result;

pub(crate) fn cudaMalloc(address: Out<u64>, size: usize) -> Result {
    match size {
        0 => address.set(0),
        _ => check(cuMemAlloc_v2(address, size)),
    }
}

/// The directions of cudaMemcpyKind: to and from the host and the GPU, or as the addresses say.
pub(crate) fn check_direction(kind: u32) -> Result {
    if kind <= 4 { Ok(()) } else { Err(INVALID_COPY_DIRECTION) }
}

pub(crate) fn cudaMemcpy(to: u64, from: u64, size: usize, kind: u32) -> Result {
    check_direction(kind)?;
    check(cuMemcpy(to, from, size))
}

pub(crate) fn cudaMemcpyAsync(to: u64, from: u64, size: usize, kind: u32, stream: usize) -> Result {
    check_direction(kind)?;
    check(cuMemcpyAsync(to, from, size, stream))
}

/// cudaPointerAttributes, as far as CUDA 12 has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: u32,
    gpu: i32,
    device: u64,
    host: u64,
}

/// An attribute of a pointer, by its number in the driver API.
fn attribute(number: u32, address: u64) -> Result<u64> {
    let mut value = 0_u64.to_ne_bytes();
    check(cuPointerGetAttribute(Out::first_of(&mut value), number, address))?;
    Ok(u64::from_ne_bytes(value))
}

pub(crate) fn cudaPointerGetAttributes(to: Out<PointerAttributes>, address: u64) -> Result {
    /// cudaMemoryType
    const UNREGISTERED: u32 = 0;
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    const MANAGED: u32 = 3;
    /// CU_POINTER_ATTRIBUTE_IS_MANAGED, MEMORY_TYPE, DEVICE_ORDINAL.
    const IS_MANAGED: u32 = 8;
    const MEMORY_TYPE: u32 = 2;
    const DEVICE_ORDINAL: u32 = 9;
    /// cudaInvalidDeviceId
    const NO_GPU: i32 = -2;
    let kind = match (attribute(MEMORY_TYPE, address), attribute(IS_MANAGED, address)) {
        (Err(_), _) => UNREGISTERED,
        (_, Ok(1)) => MANAGED,
        (Ok(kind), _) if kind == u64::from(HOST) => HOST,
        _ => DEVICE,
    };
    let gpu = attribute(DEVICE_ORDINAL, address).map_or(NO_GPU, |gpu| gpu as i32);
    to.set(PointerAttributes {
        kind,
        gpu,
        device: if kind == UNREGISTERED { 0 } else { address },
        host: if kind == DEVICE { 0 } else { address },
    })
}
