//! The functions that libcudart exports. The word before `fn` is the function of `entry` that runs the body:
//!
//! ```text
//! in_context fn cudaFree(address: u64) => cuMemFree_v2;                              calls the driver
//! in_context fn cudaStreamCreate(stream: Out<usize>) => cuStreamCreate(stream, 0);   with other arguments
//! initialized fn cudaDeviceReset() { entry::reset() };                               has a body of its own
//! ```

use std::ffi::{c_char, c_void};

use super::entry::{GPU, check};
use super::kernels::{
    CONFIGURATIONS, Configuration, Dim3, FuncAttributes, LaunchConfig, c_string, part, registry, variable,
};
use super::properties::{CUDA_12, CUDA_13, PointerAttributes};
use super::{entry, kernels, properties};
use crate::args::{In, Out};
use crate::driver::entry_points::exported::*;
use crate::error::{Error, Result, ensure};
use gdremu_core::cuda::types::IpcHandle;

macro_rules! entry_point {
    ($entry:ident ($($argument:ident: $type:ty),*) [$body:block] $($symbol:ident)*) => {
        const _: () = {
            extern "C" fn function($($argument: $type),*) -> i32 {
                entry::$entry(|| $body)
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
    ($entry:ident $arguments:tt [=> $driver:ident $passed:tt] $($symbol:ident)*) => {
        entry_point!($entry $arguments [{ check($driver $passed) }] $($symbol)*);
    };
    ($entry:ident ($($argument:ident: $type:ty),*) [=> $driver:ident] $($symbol:ident)*) => {
        entry_point!($entry ($($argument: $type),*) [{ check($driver($($argument),*)) }] $($symbol)*);
    };
}

macro_rules! entry_points {
    ($(
        $entry:ident fn $symbol:ident $arguments:tt $(, $also:ident)*
            $(=> $driver:ident $(($($passed:tt)*))?)? $($body:block)?;
    )*) => {
        $(entry_point!($entry $arguments [$($body)? $(=> $driver $(($($passed)*))?)?] $symbol $($also)*);)*
    };
}

entry_points! {
    without_init fn cudaDriverGetVersion(version: Out<i32>) => cuDriverGetVersion;
    without_init fn cudaRuntimeGetVersion(version: Out<i32>) { version.set(entry::version()) };

    initialized fn cudaGetDriverEntryPoint(name: In<c_char>, function: Out<*const c_void>, flags: u64,
        status: Out<u32>) => cuGetProcAddress_v2(name, function, entry::version(), flags, status);
    initialized fn cudaGetDriverEntryPointByVersion(name: In<c_char>, function: Out<*const c_void>, version: u32,
        flags: u64, status: Out<u32>) => cuGetProcAddress_v2(name, function, version as i32, flags, status);

    without_init fn cudaGetDeviceCount(count: Out<i32>) {
        count.set(0)?;
        check(cuInit(0))?;
        check(cuDeviceGetCount(count))
    };
    initialized fn cudaSetDevice(gpu: i32) { entry::set_device(gpu) };
    in_context fn cudaSetDeviceFlags(flags: u32) => cuCtxSetFlags;
    // Returns the GPU of the current context. If there is none, returns that of the thread's last cudaSetDevice.
    initialized fn cudaGetDevice(gpu: Out<i32>) {
        gpu.set(GPU.get())?;
        cuCtxGetDevice(gpu);
        Ok(())
    };
    initialized fn cudaGetDeviceProperties(to: Out<u8>, gpu: i32) { properties::of(to, gpu, CUDA_13) };
    initialized fn cudaGetDeviceProperties_v2(to: Out<u8>, gpu: i32) { properties::of(to, gpu, CUDA_12) };
    initialized fn cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, gpu: i32) => cuDeviceGetAttribute;
    initialized fn cudaDeviceGetPCIBusId(text: Out<c_char>, len: i32, gpu: i32) => cuDeviceGetPCIBusId;
    initialized fn cudaDeviceGetByPCIBusId(gpu: Out<i32>, text: In<c_char>) => cuDeviceGetByPCIBusId;
    in_context fn cudaDeviceGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) => cuCtxGetStreamPriorityRange;
    initialized fn cudaDeviceCanAccessPeer(can: Out<i32>, gpu: i32, peer: i32) => cuDeviceCanAccessPeer;
    in_context fn cudaDeviceSynchronize() => cuCtxSynchronize;
    initialized fn cudaDeviceReset() { entry::reset() };

    in_context fn cudaMalloc(address: Out<u64>, size: usize) {
        match size {
            0 => address.set(0),
            _ => check(cuMemAlloc_v2(address, size)),
        }
    };
    in_context fn cudaMallocManaged(address: Out<u64>, size: usize, flags: u32) {
        match size {
            0 => address.set(0),
            _ => check(cuMemAllocManaged(address, size, flags)),
        }
    };
    in_context fn cudaMallocAsync(address: Out<u64>, size: usize, stream: usize) => cuMemAllocAsync;
    in_context fn cudaFree(address: u64) => cuMemFree_v2;
    in_context fn cudaFreeAsync(address: u64, stream: usize) => cuMemFreeAsync;
    in_context fn cudaHostAlloc(address: Out<usize>, size: usize, flags: u32) => cuMemHostAlloc;
    in_context fn cudaMallocHost(address: Out<usize>, size: usize) => cuMemHostAlloc(address, size, 0);
    in_context fn cudaFreeHost(address: usize) => cuMemFreeHost;
    in_context fn cudaHostRegister(address: usize, size: usize, flags: u32) => cuMemHostRegister_v2;
    in_context fn cudaHostUnregister(address: usize) => cuMemHostUnregister;
    in_context fn cudaHostGetDevicePointer(device: Out<u64>, address: usize, flags: u32)
        => cuMemHostGetDevicePointer_v2;
    in_context fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) => cuMemGetInfo_v2;
    in_context fn cudaMemcpy(to: u64, from: u64, size: usize, kind: u32) { copy(to, from, size, kind, None) };
    in_context fn cudaMemcpyAsync(to: u64, from: u64, size: usize, kind: u32, stream: usize)
        { copy(to, from, size, kind, Some(stream)) };
    in_context fn cudaMemcpyPeer(to: u64, _to_gpu: i32, from: u64, _from_gpu: i32, size: usize)
        => cuMemcpyDtoD_v2(to, from, size);
    in_context fn cudaMemcpyPeerAsync(to: u64, _to_gpu: i32, from: u64, _from_gpu: i32, size: usize, stream: usize)
        => cuMemcpyDtoDAsync_v2(to, from, size, stream);
    in_context fn cudaPointerGetAttributes(to: Out<PointerAttributes>, address: u64)
        { to.set(PointerAttributes::of(address)) };
    in_context fn cudaMemset(address: u64, value: i32, size: usize)
        => cuMemsetD8_v2(address, value as u8, size);
    in_context fn cudaMemsetAsync(address: u64, value: i32, size: usize, stream: usize)
        => cuMemsetD8Async(address, value as u8, size, stream);
    in_context fn cudaIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) => cuIpcGetMemHandle;
    in_context fn cudaIpcOpenMemHandle(address: Out<u64>, handle: IpcHandle, flags: u32) => cuIpcOpenMemHandle_v2;
    in_context fn cudaIpcCloseMemHandle(address: u64) => cuIpcCloseMemHandle;

    in_context fn cudaStreamCreate(stream: Out<usize>) => cuStreamCreate(stream, 0);
    in_context fn cudaStreamCreateWithFlags(stream: Out<usize>, flags: u32) => cuStreamCreate;
    in_context fn cudaStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32)
        => cuStreamCreateWithPriority;
    in_context fn cudaStreamWaitEvent(stream: usize, event: usize, flags: u32) => cuStreamWaitEvent;
    in_context fn cudaStreamIsCapturing(stream: usize, status: Out<u32>) => cuStreamIsCapturing;
    in_context fn cudaStreamDestroy(stream: usize) => cuStreamDestroy_v2;
    in_context fn cudaStreamSynchronize(stream: usize) => cuStreamSynchronize;
    in_context fn cudaStreamQuery(stream: usize) => cuStreamQuery;
    in_context fn cudaLaunchHostFunc(stream: usize, function: Option<extern "C" fn(usize)>, data: usize)
        => cuLaunchHostFunc;
    without_init fn cudaThreadExchangeStreamCaptureMode(mode: Out<u32>) => cuThreadExchangeStreamCaptureMode;
    in_context fn cudaEventCreate(event: Out<usize>) => cuEventCreate(event, 0);
    in_context fn cudaEventCreateWithFlags(event: Out<usize>, flags: u32) => cuEventCreate;
    in_context fn cudaEventDestroy(event: usize) => cuEventDestroy_v2;
    in_context fn cudaEventRecord(event: usize, stream: usize) => cuEventRecord;
    in_context fn cudaEventRecordWithFlags(event: usize, stream: usize, flags: u32) => cuEventRecordWithFlags;
    in_context fn cudaEventQuery(event: usize) => cuEventQuery;
    in_context fn cudaEventSynchronize(event: usize) => cuEventSynchronize;
    in_context fn cudaEventElapsedTime(time: Out<f32>, start: usize, end: usize) => cuEventElapsedTime;

    without_init fn __cudaRegisterFatBinaryEnd(_binary: usize) { Ok(()) };
    without_init fn __cudaRegisterFunction(binary: usize, function: usize, _device_function: usize, name: In<c_char>) {
        registry().functions.insert(function, (binary, c_string(name)));
        Ok(())
    };
    without_init fn __cudaRegisterVar(binary: usize, variable: usize, _device_variable: usize, name: In<c_char>) {
        registry().variables.insert(variable, (binary, c_string(name)));
        Ok(())
    };
    // Managed variables and variables in host memory are not supported. Programs can register them, but GPU kernels
    // that use them are refused.
    without_init fn __cudaRegisterManagedVar() { Ok(()) };
    without_init fn __cudaRegisterHostVar() { Ok(()) };
    without_init fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared_bytes: usize, stream: usize) {
        let pushed = Configuration { grid, block, shared_bytes, stream };
        CONFIGURATIONS.with_borrow_mut(|configurations| configurations.push(pushed));
        Ok(())
    };
    without_init fn __cudaPopCallConfiguration(grid: Out<Dim3>, block: Out<Dim3>, shared_bytes: Out<usize>,
        stream: Out<usize>) {
        let pushed = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(Error::MISSING_CONFIGURATION)?;
        grid.set(pushed.grid)?;
        block.set(pushed.block)?;
        shared_bytes.set(pushed.shared_bytes)?;
        stream.set(pushed.stream)
    };
    // In gdremu, a cudaKernel_t is the address under which the program has registered the GPU kernel.
    without_init fn __cudaGetKernel(kernel: Out<usize>, function: usize), cudaGetKernel {
        ensure(registry().functions.contains_key(&function), Error::INVALID_DEVICE_FUNCTION)?;
        kernel.set(function)
    };
    in_context fn cudaLaunchKernel(function: usize, grid: Dim3, block: Dim3, arguments: In<In<u8>>, shared_bytes: usize,
        stream: usize), __cudaLaunchKernel
        { kernels::launch(function, Configuration { grid, block, shared_bytes, stream }, arguments, false) };
    in_context fn cudaLaunchCooperativeKernel(function: usize, grid: Dim3, block: Dim3, arguments: In<In<u8>>,
        shared_bytes: usize, stream: usize)
        { kernels::launch(function, Configuration { grid, block, shared_bytes, stream }, arguments, true) };
    in_context fn cudaLaunchKernelExC(config: In<LaunchConfig>, function: usize, arguments: In<In<u8>>)
        { kernels::launch_configured(config.get()?, function, arguments) };
    in_context fn cudaFuncGetAttributes(to: Out<FuncAttributes>, function: usize)
        { to.fill(|| FuncAttributes::of(function)) };
    in_context fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: usize,
        threads: i32, shared_bytes: usize, _flags: u32)
        => cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernels::function(function)?, threads, shared_bytes);
    in_context fn cudaGetSymbolAddress(address: Out<u64>, symbol: usize) { address.set(variable(symbol)?.0) };
    in_context fn cudaGetSymbolSize(size: Out<usize>, symbol: usize) { size.set(variable(symbol)?.1) };
    in_context fn cudaMemcpyToSymbol(symbol: usize, from: u64, size: usize, offset: usize, kind: u32)
        { copy(part(symbol, size, offset, kind, TO_HOST)?, from, size, kind, None) };
    in_context fn cudaMemcpyFromSymbol(to: u64, symbol: usize, size: usize, offset: usize, kind: u32)
        { copy(to, part(symbol, size, offset, kind, TO_DEVICE)?, size, kind, None) };
}

gdremu_preload::export! {
    kernels::__cudaInitModule;
    kernels::__cudaRegisterFatBinary;
    kernels::__cudaUnregisterFatBinary;
    errors::cudaGetErrorName;
    errors::cudaGetErrorString;
    errors::cudaGetLastError;
    errors::cudaPeekAtLastError;
}

/// Values of cudaMemcpyKind. For 0 (host to host) and 4 (default), the addresses determine the direction.
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;

fn copy(to: u64, from: u64, size: usize, kind: u32, stream: Option<usize>) -> Result {
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
