//! Names without suffix of functions that have one, where both have the same arguments.

use super::state::ContextHandle;
use super::types::Uuid;
use super::{context, device, event, host, primary, stream};
use crate::args::Out;

pub(crate) extern "C" fn cuDeviceGetUuid(uuid: Out<Uuid>, device: i32) -> i32 {
    device::cuDeviceGetUuid_v2(uuid, device)
}

pub(crate) extern "C" fn cuCtxCreate(handle: Out<ContextHandle>, flags: u32, device: i32) -> i32 {
    context::cuCtxCreate_v2(handle, flags, device)
}

pub(crate) extern "C" fn cuCtxDestroy(context: ContextHandle) -> i32 {
    context::cuCtxDestroy_v2(context)
}

pub(crate) extern "C" fn cuCtxPushCurrent(context: ContextHandle) -> i32 {
    context::cuCtxPushCurrent_v2(context)
}

pub(crate) extern "C" fn cuCtxPopCurrent(handle: Out<ContextHandle>) -> i32 {
    context::cuCtxPopCurrent_v2(handle)
}

pub(crate) extern "C" fn cuDevicePrimaryCtxRelease(device: i32) -> i32 {
    primary::cuDevicePrimaryCtxRelease_v2(device)
}

pub(crate) extern "C" fn cuDevicePrimaryCtxReset(device: i32) -> i32 {
    primary::cuDevicePrimaryCtxReset_v2(device)
}

pub(crate) extern "C" fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) -> i32 {
    primary::cuDevicePrimaryCtxSetFlags_v2(device, flags)
}

pub(crate) extern "C" fn cuMemHostRegister(address: usize, size: usize, flags: u32) -> i32 {
    host::cuMemHostRegister_v2(address, size, flags)
}

pub(crate) extern "C" fn cuStreamDestroy(stream: usize) -> i32 {
    stream::cuStreamDestroy_v2(stream)
}

pub(crate) extern "C" fn cuEventDestroy(event: usize) -> i32 {
    event::cuEventDestroy_v2(event)
}
