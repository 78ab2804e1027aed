//! Code for the GPU, which these GPUs cannot run: every call says so.

use std::ffi::c_char;

use super::args::{In, Out};
use super::entry::in_context;
use super::error::Error;
use super::stream::StreamHandle;

/// CUmodule and CUfunction, of which there are none.
type CodeHandle = usize;

fn unsupported(call: &str) -> i32 {
    in_context(call, |_, _| {
        eprintln!("gdremu: {call}: the emulated GPU runs no kernels");
        Err(Error::NOT_SUPPORTED)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoad(_module: Out<CodeHandle>, _file: In<c_char>) -> i32 {
    unsupported("cuModuleLoad")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoadData(_module: Out<CodeHandle>, _image: In<u8>) -> i32 {
    unsupported("cuModuleLoadData")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoadDataEx(
    _module: Out<CodeHandle>,
    _image: In<u8>,
    _count: u32,
    _options: In<u32>,
    _values: In<usize>,
) -> i32 {
    unsupported("cuModuleLoadDataEx")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleUnload(_module: CodeHandle) -> i32 {
    unsupported("cuModuleUnload")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetFunction(
    _function: Out<CodeHandle>,
    _module: CodeHandle,
    _name: In<c_char>,
) -> i32 {
    unsupported("cuModuleGetFunction")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetGlobal_v2(
    _address: Out<u64>,
    _size: Out<usize>,
    _module: CodeHandle,
    _name: In<c_char>,
) -> i32 {
    unsupported("cuModuleGetGlobal")
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLaunchKernel(
    _function: CodeHandle,
    _grid_x: u32,
    _grid_y: u32,
    _grid_z: u32,
    _block_x: u32,
    _block_y: u32,
    _block_z: u32,
    _shared_bytes: u32,
    _stream: StreamHandle,
    _parameters: In<usize>,
    _extra: In<usize>,
) -> i32 {
    unsupported("cuLaunchKernel")
}
