//! cuInit and the driver's version.

use super::state;
use crate::args::Out;
use crate::error::{Error, Result};
use crate::gpus;

pub(super) fn cuInit(flags: u32) -> Result {
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if gpus::visible().is_empty() {
        return Err(Error::NO_DEVICE);
    }
    state::initialize()
}

pub(super) fn cuDriverGetVersion(version: Out<i32>) -> Result {
    version.set(gpus::config().cuda_version as i32)
}
