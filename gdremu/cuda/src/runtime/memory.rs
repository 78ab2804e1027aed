//! The directions of copies, and what a pointer points to.
#![forbid(unsafe_code)]

use super::entry::check;
use super::errors::INVALID_COPY_DIRECTION;
use crate::args::Out;
use crate::driver::entry_points::exported::cuPointerGetAttribute;
use crate::error::{Result, ensure};

/// The directions of cudaMemcpyKind: to and from the host and the GPU, or as the addresses say.
pub(crate) fn check_direction(kind: u32) -> Result {
    ensure(kind <= 4, INVALID_COPY_DIRECTION)
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

impl PointerAttributes {
    pub(crate) fn of(address: u64) -> PointerAttributes {
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
        PointerAttributes {
            kind,
            gpu: attribute(DEVICE_ORDINAL, address).map_or(NO_GPU, |gpu| gpu as i32),
            device: if kind == UNREGISTERED { 0 } else { address },
            host: if kind == DEVICE { 0 } else { address },
        }
    }
}
