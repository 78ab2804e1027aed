//! Copies by their direction, and what a pointer points to.
#![forbid(unsafe_code)]

use super::entry::{check, result_of};
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuMemcpy, cuMemcpyAsync, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuPointerGetAttribute,
};
use crate::error::{Error, Result};

/// cudaMemcpyKind. The kinds 0, between host memory, and 4 let the addresses determine the direction.
pub(super) const TO_DEVICE: u32 = 1;
pub(super) const TO_HOST: u32 = 2;

pub(super) fn copy(to: u64, from: u64, size: usize, kind: u32, stream: Option<usize>) -> Result {
    check(match (kind, stream) {
        (0 | 4, None) => cuMemcpy(to, from, size),
        (0 | 4, Some(stream)) => cuMemcpyAsync(to, from, size, stream),
        (TO_DEVICE, None) => cuMemcpyHtoD_v2(to, from, size),
        (TO_DEVICE, Some(stream)) => cuMemcpyHtoDAsync_v2(to, from, size, stream),
        (TO_HOST, None) => cuMemcpyDtoH_v2(to, from, size),
        (TO_HOST, Some(stream)) => cuMemcpyDtoHAsync_v2(to, from, size, stream),
        (3, None) => cuMemcpyDtoD_v2(to, from, size),
        (3, Some(stream)) => cuMemcpyDtoDAsync_v2(to, from, size, stream),
        _ => return Err(Error::INVALID_COPY_DIRECTION),
    })
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
    result_of(|value: Out<u64>| cuPointerGetAttribute(value.of(), number, address))
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
        const NO_GPU: u64 = -2_i64 as u64;
        let kind = match (attribute(MEMORY_TYPE, address), attribute(IS_MANAGED, address)) {
            (Err(_), _) => UNREGISTERED,
            (_, Ok(1)) => MANAGED,
            (Ok(kind), _) if kind == u64::from(HOST) => HOST,
            _ => DEVICE,
        };
        PointerAttributes {
            kind,
            gpu: attribute(DEVICE_ORDINAL, address).unwrap_or(NO_GPU) as i32,
            device: if kind == UNREGISTERED { 0 } else { address },
            host: if kind == DEVICE { 0 } else { address },
        }
    }
}
