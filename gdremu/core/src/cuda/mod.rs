//! The functions of the CUDA driver API that the emulator has, described once, and their structures.

pub mod types;

/// Calls a macro with the description of all functions, by topic:
///
/// ```text
/// fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
/// ```
///
/// The stand-in libcuda exports this function as `cuCtxDestroy_v2`, which CUDA has since 4.0, and as `cuCtxDestroy`,
/// since 2.0. `initialized` is how the function begins (`entry` in the stand-in). Its body is the function
/// `cuCtxDestroy_v2` in the topic's module. Types are those in scope where the macro is called.
#[macro_export]
macro_rules! cuda_driver {
    ($declare:ident) => { $declare! {
    init {
        fn cuInit(flags: u32) without_init 2000;
        fn cuDriverGetVersion(version: Out<i32>) without_init 2020;
    }
    error_text {
        fn cuGetErrorName(error: i32, text: Out<*const c_char>) without_init 6000;
        fn cuGetErrorString(error: i32, text: Out<*const c_char>) without_init 6000;
    }
    proc_address {
        fn cuGetProcAddress(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64)
            without_init 11030;
        fn cuGetProcAddress_v2(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64,
               status: Out<u32>)
            without_init 12000;
    }
    device {
        fn cuDeviceGetCount(count: Out<i32>) initialized 2000;
        fn cuDeviceGet(device: Out<i32>, ordinal: i32) initialized 2000;
        fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) initialized 2000;
        fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: i32) initialized 11040, cuDeviceGetUuid 9020;
        fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) initialized 3020;
        fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) initialized 2000;
        fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) initialized 2000;
        fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) initialized 4010;
        fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<c_char>) initialized 4010;
    }
    primary {
        fn cuDevicePrimaryCtxRetain(handle: Out<ContextHandle>, device: i32) with_state 7000;
        fn cuDevicePrimaryCtxRelease_v2(device: i32) initialized 11000, cuDevicePrimaryCtxRelease 7000;
        fn cuDevicePrimaryCtxReset_v2(device: i32) initialized 11000, cuDevicePrimaryCtxReset 7000;
        fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) with_state 11000, cuDevicePrimaryCtxSetFlags 7000;
        fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) with_state 7000;
    }
    context {
        fn cuCtxCreate_v2(handle: Out<ContextHandle>, flags: u32, device: i32) with_state 3020, cuCtxCreate 2000;
        fn cuCtxCreate_v3(handle: Out<ContextHandle>, affinities: In<u8>, count: i32, flags: u32, device: i32)
            with_state 11040;
        fn cuCtxCreate_v4(handle: Out<ContextHandle>, parameters: In<[usize; 3]>, flags: u32, device: i32) with_state 12050;
        fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
        fn cuCtxPushCurrent_v2(context: ContextHandle) with_state 4000, cuCtxPushCurrent 2000;
        fn cuCtxPopCurrent_v2(handle: Out<ContextHandle>) with_state 4000, cuCtxPopCurrent 2000;
        fn cuCtxSetCurrent(context: ContextHandle) with_state 4000;
        fn cuCtxGetCurrent(handle: Out<ContextHandle>) with_state 4000;
        fn cuCtxGetDevice(device: Out<i32>) in_context 2000;
        fn cuCtxGetDevice_v2(device: Out<i32>, context: ContextHandle) with_state 13000;
        fn cuCtxGetFlags(flags: Out<u32>) in_context 7000;
        fn cuCtxSetFlags(flags: u32) in_context 12010;
        fn cuCtxGetExecAffinity(parameter: Out<[u32; 2]>, kind: u32) in_context 11040;
        fn cuCtxGetId(context: ContextHandle, id: Out<u64>) with_state 12000;
        fn cuCtxGetApiVersion(context: ContextHandle, version: Out<u32>) with_state 3020;
        fn cuCtxSynchronize() initialized 2000;
        fn cuCtxSynchronize_v2(context: ContextHandle) initialized 13000;
        fn cuProfilerStart() in_context 4000;
        fn cuProfilerStop() in_context 4000;
    }
    peer {
        fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) initialized 4000;
        fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, source: i32, destination: i32) initialized 8000;
        fn cuCtxEnablePeerAccess(peer: ContextHandle, flags: u32) in_context 4000;
        fn cuCtxDisablePeerAccess(peer: ContextHandle) in_context 4000;
        fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) in_context 11030;
    }
    buffer {
        fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) in_context 3020;
        fn cuMemAlloc_v2(address: Out<u64>, size: usize) in_context 3020;
        fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
            in_context 3020;
        fn cuMemFree_v2(address: u64) initialized 3020;
        fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) in_context 3020;
    }
    host {
        fn cuMemAllocHost_v2(address: Out<usize>, size: usize) in_context 3020;
        fn cuMemHostAlloc(address: Out<usize>, size: usize, flags: u32) in_context 2020;
        fn cuMemFreeHost(address: usize) initialized 2000;
        fn cuMemAllocManaged(address: Out<u64>, size: usize, flags: u32) in_context 6000;
        fn cuMemHostRegister_v2(address: usize, size: usize, flags: u32) in_context 6050, cuMemHostRegister 4000;
        fn cuMemHostUnregister(address: usize) initialized 4000;
        fn cuMemHostGetDevicePointer_v2(device: Out<u64>, address: usize, flags: u32) in_context 3020;
        fn cuMemHostGetFlags(flags: Out<u32>, address: usize) in_context 2030;
    }
    copy {
        fn cuMemcpy(to: u64, from: u64, size: usize) initialized 4000, cuMemcpy_ptds 7000;
        fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 4000, cuMemcpyAsync_ptsz 7000;
        fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyHtoD_v2_ptds 7000;
        fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyHtoDAsync_v2_ptsz 7000;
        fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyDtoH_v2_ptds 7000;
        fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyDtoHAsync_v2_ptsz 7000;
        fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyDtoD_v2_ptds 7000;
        fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyDtoDAsync_v2_ptsz 7000;
        fn cuMemcpyPeer(to: u64, to_context: ContextHandle, from: u64, from_context: ContextHandle, size: usize)
            initialized 4000, cuMemcpyPeer_ptds 7000;
        fn cuMemcpyPeerAsync(to: u64, to_context: ContextHandle, from: u64, from_context: ContextHandle, size: usize,
               stream: StreamHandle)
            initialized 4000, cuMemcpyPeerAsync_ptsz 7000;
    }
    fill {
        fn cuMemsetD8_v2(address: u64, value: u8, count: usize) initialized 3020, cuMemsetD8_v2_ptds 7000;
        fn cuMemsetD16_v2(address: u64, value: u16, count: usize) initialized 3020, cuMemsetD16_v2_ptds 7000;
        fn cuMemsetD32_v2(address: u64, value: u32, count: usize) initialized 3020, cuMemsetD32_v2_ptds 7000;
        fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: StreamHandle)
            initialized 3020, cuMemsetD8Async_ptsz 7000;
        fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: StreamHandle)
            initialized 3020, cuMemsetD16Async_ptsz 7000;
        fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: StreamHandle)
            initialized 3020, cuMemsetD32Async_ptsz 7000;
    }
    pool {
        fn cuDeviceGetDefaultMemPool(pool: Out<PoolHandle>, device: i32) with_state 11020;
        fn cuDeviceGetMemPool(pool: Out<PoolHandle>, device: i32) with_state 11020;
        fn cuDeviceSetMemPool(device: i32, pool: PoolHandle) with_state 11020;
        fn cuMemPoolCreate(pool: Out<PoolHandle>, props: In<PoolProps>) with_state 11020;
        fn cuMemPoolDestroy(pool: PoolHandle) with_state 11020;
        fn cuMemPoolTrimTo(pool: PoolHandle, keep: usize) with_state 11020;
        fn cuMemPoolGetAttribute(pool: PoolHandle, attribute: u32, value: Out<u8>) with_state 11020;
        fn cuMemPoolSetAttribute(pool: PoolHandle, attribute: u32, value: In<u8>) with_state 11020;
        fn cuMemPoolSetAccess(pool: PoolHandle, wanted: In<AccessDesc>, count: usize) with_state 11020;
        fn cuMemPoolGetAccess(flags: Out<u32>, pool: PoolHandle, location: In<Location>) with_state 11020;
        fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: StreamHandle)
            in_context 11020, cuMemAllocAsync_ptsz 11020;
        fn cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: PoolHandle, stream: StreamHandle)
            in_context 11020, cuMemAllocFromPoolAsync_ptsz 11020;
        fn cuMemFreeAsync(address: u64, stream: StreamHandle) initialized 11020, cuMemFreeAsync_ptsz 11020;
    }
    pointer {
        fn cuPointerGetAttribute(data: Untyped, attribute: u32, address: u64) with_state 4000;
        fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<Untyped>, address: u64) with_state 7000;
        fn cuMemRangeGetAttribute(data: Untyped, size: usize, attribute: u32, address: u64, count: usize)
            with_state 8000;
        fn cuPointerSetAttribute(value: In<u32>, attribute: u32, address: u64) with_state 6000;
    }
    vmm {
        fn cuMemGetAllocationGranularity(granularity: Out<usize>, prop: In<AllocationProp>, option: u32)
            initialized 10020;
        fn cuMemCreate(handle: Out<u64>, size: usize, prop: In<AllocationProp>, flags: u64) initialized 10020;
        fn cuMemRelease(handle: u64) initialized 10020;
        fn cuMemRetainAllocationHandle(handle: Out<u64>, address: *mut c_void) initialized 11000;
        fn cuMemGetAllocationPropertiesFromHandle(prop: Out<AllocationProp>, handle: u64) initialized 10020;
        fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, hint: u64, flags: u64)
            initialized 10020;
        fn cuMemAddressFree(address: u64, size: usize) initialized 10020;
        fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) initialized 10020;
        fn cuMemUnmap(address: u64, size: usize) initialized 10020;
        fn cuMemSetAccess(address: u64, size: usize, wanted: In<AccessDesc>, count: usize) initialized 10020;
        fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) initialized 10020;
    }
    export {
        fn cuMemGetHandleForAddressRange(handle: Untyped, address: u64, size: usize, kind: u32, flags: u64)
            in_context 11070;
        fn cuMemExportToShareableHandle(shareable: Untyped, handle: u64, kind: u32, flags: u64) initialized 10020;
        fn cuMemImportFromShareableHandle(handle: Out<u64>, shareable: usize, kind: u32) initialized 10020;
    }
    ipc {
        fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) in_context 4010;
        fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: u32) in_context 11000;
        fn cuIpcCloseMemHandle(address: u64) initialized 4010;
        fn cuMemPoolExportToShareableHandle(handle: Out<u8>, pool: usize, kind: u32, flags: u64) initialized 11020;
        fn cuMemPoolImportFromShareableHandle(pool: Out<usize>, handle: usize, kind: u32, flags: u64) initialized 11020;
        fn cuMemPoolExportPointer(export: Out<PoolExport>, address: u64) initialized 11020;
        fn cuMemPoolImportPointer(address: Out<u64>, pool: usize, export: In<PoolExport>) initialized 11020;
    }
    stream {
        fn cuStreamCreate(stream: Out<StreamHandle>, flags: u32) in_context 2000;
        fn cuStreamCreateWithPriority(stream: Out<StreamHandle>, flags: u32, priority: i32) in_context 5050;
        fn cuStreamDestroy_v2(stream: StreamHandle) with_state 4000, cuStreamDestroy 2000;
        fn cuStreamSynchronize(stream: StreamHandle) initialized 2000, cuStreamSynchronize_ptsz 7000;
        fn cuStreamQuery(stream: StreamHandle) in_context 2000, cuStreamQuery_ptsz 7000;
        fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32)
            initialized 3020, cuStreamWaitEvent_ptsz 7000;
        fn cuStreamGetFlags(stream: StreamHandle, flags: Out<u32>) in_context 5050, cuStreamGetFlags_ptsz 7000;
        fn cuStreamGetPriority(stream: StreamHandle, priority: Out<i32>) in_context 5050, cuStreamGetPriority_ptsz 7000;
        fn cuStreamGetCtx(stream: StreamHandle, context: Out<ContextHandle>) in_context 9020, cuStreamGetCtx_ptsz 9020;
        fn cuStreamGetCtx_v2(stream: StreamHandle, context: Out<ContextHandle>, green_context: Out<usize>)
            in_context 12050, cuStreamGetCtx_v2_ptsz 12050;
        fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) in_context 5050;
        fn cuLaunchHostFunc(stream: StreamHandle, function: Option<extern "C" fn(usize)>, data: usize)
            initialized 10000, cuLaunchHostFunc_ptsz 10000;
        fn cuLaunchHostFunc_v2(stream: StreamHandle, function: Option<extern "C" fn(usize)>, data: usize,
               sync_mode: u32)
            initialized 13010;
        fn cuStreamAddCallback(stream: StreamHandle, callback: Option<extern "C" fn(StreamHandle, i32, usize)>,
               data: usize, flags: u32)
            initialized 5000, cuStreamAddCallback_ptsz 7000;
    }
    event {
        fn cuEventCreate(event: Out<EventHandle>, flags: u32) in_context 2000;
        fn cuEventDestroy_v2(event: EventHandle) with_state 4000, cuEventDestroy 2000;
        fn cuEventRecord(event: EventHandle, stream: StreamHandle) initialized 2000, cuEventRecord_ptsz 7000;
        fn cuEventRecordWithFlags(event: EventHandle, stream: StreamHandle, flags: u32)
            initialized 11010, cuEventRecordWithFlags_ptsz 11010;
        fn cuEventQuery(event: EventHandle) with_state 2000;
        fn cuEventSynchronize(event: EventHandle) initialized 2000;
        fn cuEventElapsedTime(milliseconds: Out<f32>, start: EventHandle, end: EventHandle) with_state 2000;
        fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: EventHandle, end: EventHandle) with_state 12080;
    }
    capture {
        fn cuStreamBeginCapture_v2(stream: StreamHandle, mode: u32)
            in_context 10010, cuStreamBeginCapture_v2_ptsz 10010;
        fn cuStreamEndCapture(stream: StreamHandle, graph: Out<usize>) in_context 10000, cuStreamEndCapture_ptsz 10000;
        fn cuGraphDestroy(graph: usize) with_state 10000;
        fn cuStreamIsCapturing(stream: StreamHandle, status: Out<u32>) in_context 10000, cuStreamIsCapturing_ptsz 10000;
        fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) without_init 10010;
    }
    module {
        fn cuModuleLoadData(module: Out<ModuleHandle>, image: In<u8>) initialized 2000;
        fn cuModuleLoadDataEx(module: Out<ModuleHandle>, image: In<u8>, options: u32, names: In<u32>, values: In<usize>)
            initialized 2010;
        fn cuModuleLoadFatBinary(module: Out<ModuleHandle>, image: In<u8>) initialized 2000;
        fn cuModuleUnload(module: ModuleHandle) initialized 2000;
        fn cuModuleGetFunction(function: Out<FunctionHandle>, module: ModuleHandle, name: In<c_char>) in_context 2000;
        fn cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: ModuleHandle, name: In<c_char>)
            in_context 3020;
        fn cuLibraryGetGlobal(address: Out<u64>, size: Out<usize>, library: usize, name: In<c_char>) initialized 12000;
    }
    kernel {
        fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: FunctionHandle) in_context 2020;
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: FunctionHandle, threads: i32,
               shared_bytes: usize)
            in_context 6050;
        fn cuLaunchKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
               block_z: u32, shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>, extra: In<In<u8>>)
            initialized 4000, cuLaunchKernel_ptsz 7000;
        fn cuLaunchCooperativeKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
               block_y: u32, block_z: u32, shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>)
            initialized 9000, cuLaunchCooperativeKernel_ptsz 9000;
    }
    } };
}

/// A function, as the shared object exports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// With the suffix of its version.
    pub symbol: &'static str,
    /// The CUDA version that it came with: 3020 for 3.2.
    pub since: u32,
}

macro_rules! functions {
    ($($module:ident { $(
        fn $first:ident $arguments:tt $entry:ident $since:literal $(, $also:ident $also_since:literal)*;
    )* })*) => {
        /// All functions, those of one name in the order of their versions.
        pub const FUNCTIONS: &[Function] = &[$($(
            $(Function { symbol: stringify!($also), since: $also_since },)*
            Function { symbol: stringify!($first), since: $since },
        )*)*];
    };
}

cuda_driver!(functions);

impl Function {
    /// As programs call it, and cuGetProcAddress knows it.
    pub fn name(&self) -> &'static str {
        name_of(self.symbol)
    }
}

/// The name of a function by its symbol: `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}

/// Why there is no function.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    Name,
    /// It came with a later version of CUDA.
    Version,
}

/// The newest function of this name that CUDA `version` has.
pub fn newest(name: &str, version: u32) -> Result<&'static Function, Missing> {
    let mut named = FUNCTIONS.iter().filter(|function| function.name() == name).peekable();
    named.peek().ok_or(Missing::Name)?;
    named
        .filter(|function| function.since <= version)
        .max_by_key(|function| function.since)
        .ok_or(Missing::Version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_a_version() {
        let found = |name, version| newest(name, version).map(|function| function.symbol);
        assert_eq!(found("cuMemAlloc", 13000), Ok("cuMemAlloc_v2"));
        assert_eq!(found("cuMemAlloc", 2000), Err(Missing::Version));
        assert_eq!(found("cuMemAlloc_v2", 13000), Err(Missing::Name));
        assert_eq!(found("cuCtxCreate", 3010), Ok("cuCtxCreate"));
        assert_eq!(found("cuCtxCreate", 11080), Ok("cuCtxCreate_v3"));
        assert_eq!(found("cuGetProcAddress", 11080), Ok("cuGetProcAddress"));
        assert_eq!(found("cuGetProcAddress", 12000), Ok("cuGetProcAddress_v2"));
        assert_eq!(found("cuEventRecord_ptsz", 12000), Ok("cuEventRecord_ptsz"));
    }
}
