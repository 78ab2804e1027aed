//! Copies by their direction.
#![forbid(unsafe_code)]

use super::entry::check;
use crate::driver::entry_points::exported::{
    cuMemcpy, cuMemcpyAsync, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2,
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
