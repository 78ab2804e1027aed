//! What nvcc compiles into programs.

use super::entry;
use super::errors::INVALID_SYMBOL;
use crate::args::Out;
use crate::error::{Error, Result};

pub(crate) extern "C" fn __cudaRegisterFatBinary(binary: usize) -> usize {
    binary
}

/// GPU kernels and variables of a program are not loaded, so there is nothing to register or release.
macro_rules! not_loaded {
    ($($name:ident($($argument:ident),*);)*) => {
        $(pub(crate) extern "C" fn $name($($argument: usize),*) {})*
    };
}

not_loaded! {
    __cudaRegisterFatBinaryEnd(_handle);
    __cudaUnregisterFatBinary(_handle);
    __cudaRegisterFunction(_handle);
    __cudaRegisterVar(_handle);
}

pub(crate) extern "C" fn __cudaPushCallConfiguration() -> u32 {
    0
}

pub(crate) extern "C" fn __cudaPopCallConfiguration() -> i32 {
    entry::without_init(|| Err(Error::NO_BINARY_FOR_GPU))
}

pub(crate) extern "C" fn cudaLaunchKernel() -> i32 {
    entry::in_context(|| Err(Error::NO_BINARY_FOR_GPU))
}

pub(crate) fn cudaGetSymbolAddress(_address: Out<u64>, _symbol: usize) -> Result {
    Err(INVALID_SYMBOL)
}

pub(crate) fn cudaGetSymbolSize(_size: Out<usize>, _symbol: usize) -> Result {
    Err(INVALID_SYMBOL)
}
