//! cuInit and the driver's version.

use super::entry::without_init;
use super::state;
use crate::args::Out;
use crate::error::Error;
use crate::gpus;

pub(crate) extern "C" fn cuInit(flags: u32) -> i32 {
    without_init("cuInit", || {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if gpus::count() == 0 {
            return Err(Error::NO_DEVICE);
        }
        state::initialize()
    })
}

pub(crate) extern "C" fn cuDriverGetVersion(version: Out<i32>) -> i32 {
    without_init("cuDriverGetVersion", || {
        version.set(gpus::config().cuda_version as i32)
    })
}
