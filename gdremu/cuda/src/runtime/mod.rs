//! The CUDA runtime, for programs that are linked with it dynamically: over the driver API.
//!
//! NVIDIA's own runtime does not start on a driver that cannot prove to be NVIDIA's: it asks for a
//! private table (cuGetExportTable), and checks its answer against a secret. Programs that are linked
//! with it statically find no GPU.
//!
//! These functions come before those of a libcudart that the program brings, as the library is
//! preloaded. Kernels that nvcc has compiled cannot run here, and are refused when they are launched.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::args::{In, Out};
use crate::driver::types::IpcHandle;
use crate::gpus;

/// cudaError_t values that no function of the driver API returns; all others are CUresults.
const INVALID_SYMBOL: i32 = 13;
const INVALID_COPY_DIRECTION: i32 = 21;
const INVALID_VALUE: i32 = 1;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const NO_KERNEL_IMAGE: i32 = 209;

/// The driver API by its exported entry points: tools that hook these see what the runtime does.
mod driver {
    use super::*;

    unsafe extern "C" {
        pub(crate) safe fn cuInit(flags: u32) -> i32;
        pub(crate) safe fn cuDriverGetVersion(version: Out<i32>) -> i32;
        pub(crate) safe fn cuGetErrorString(error: i32, text: Out<*const c_char>) -> i32;
        pub(crate) safe fn cuGetProcAddress_v2(
            name: In<c_char>,
            function: Out<*const c_void>,
            version: i32,
            flags: u64,
            status: Out<u32>,
        ) -> i32;
        pub(crate) safe fn cuDeviceGetCount(count: Out<i32>) -> i32;
        pub(crate) safe fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, gpu: i32) -> i32;
        pub(crate) safe fn cuDeviceGetName(name: Out<c_char>, len: i32, gpu: i32) -> i32;
        pub(crate) safe fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, gpu: i32) -> i32;
        pub(crate) safe fn cuDeviceTotalMem_v2(bytes: Out<usize>, gpu: i32) -> i32;
        pub(crate) safe fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, gpu: i32) -> i32;
        pub(crate) safe fn cuDeviceGetByPCIBusId(gpu: Out<i32>, text: In<c_char>) -> i32;
        pub(crate) safe fn cuDeviceCanAccessPeer(can: Out<i32>, gpu: i32, peer: i32) -> i32;
        pub(crate) safe fn cuDevicePrimaryCtxRetain(context: Out<usize>, gpu: i32) -> i32;
        pub(crate) safe fn cuDevicePrimaryCtxRelease_v2(gpu: i32) -> i32;
        pub(crate) safe fn cuDevicePrimaryCtxReset_v2(gpu: i32) -> i32;
        pub(crate) safe fn cuCtxGetDevice(gpu: Out<i32>) -> i32;
        pub(crate) safe fn cuCtxSetCurrent(context: usize) -> i32;
        pub(crate) safe fn cuCtxSynchronize() -> i32;
        pub(crate) safe fn cuCtxEnablePeerAccess(peer: usize, flags: u32) -> i32;
        pub(crate) safe fn cuCtxDisablePeerAccess(peer: usize) -> i32;
        pub(crate) safe fn cuCtxGetStreamPriorityRange(least: Out<i32>, most: Out<i32>) -> i32;
        pub(crate) safe fn cuMemAlloc_v2(address: Out<u64>, size: usize) -> i32;
        pub(crate) safe fn cuMemAllocPitch_v2(
            address: Out<u64>,
            pitch: Out<usize>,
            width: usize,
            height: usize,
            element: u32,
        ) -> i32;
        pub(crate) safe fn cuMemAllocManaged(address: Out<u64>, size: usize, flags: u32) -> i32;
        pub(crate) safe fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: usize) -> i32;
        pub(crate) safe fn cuMemFree_v2(address: u64) -> i32;
        pub(crate) safe fn cuMemFreeAsync(address: u64, stream: usize) -> i32;
        pub(crate) safe fn cuMemHostAlloc(address: Out<usize>, size: usize, flags: u32) -> i32;
        pub(crate) safe fn cuMemFreeHost(address: usize) -> i32;
        pub(crate) safe fn cuMemHostRegister_v2(address: usize, size: usize, flags: u32) -> i32;
        pub(crate) safe fn cuMemHostUnregister(address: usize) -> i32;
        pub(crate) safe fn cuMemHostGetDevicePointer_v2(
            device: Out<u64>,
            address: usize,
            flags: u32,
        ) -> i32;
        pub(crate) safe fn cuMemHostGetFlags(flags: Out<u32>, address: usize) -> i32;
        pub(crate) safe fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> i32;
        pub(crate) safe fn cuMemcpy(to: u64, from: u64, size: usize) -> i32;
        pub(crate) safe fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: usize) -> i32;
        pub(crate) safe fn cuMemsetD8_v2(address: u64, value: u8, size: usize) -> i32;
        pub(crate) safe fn cuMemsetD8Async(
            address: u64,
            value: u8,
            size: usize,
            stream: usize,
        ) -> i32;
        pub(crate) safe fn cuPointerGetAttribute(
            data: Out<u64>,
            attribute: u32,
            address: u64,
        ) -> i32;
        pub(crate) safe fn cuStreamCreate(stream: Out<usize>, flags: u32) -> i32;
        pub(crate) safe fn cuStreamCreateWithPriority(
            stream: Out<usize>,
            flags: u32,
            priority: i32,
        ) -> i32;
        pub(crate) safe fn cuStreamDestroy_v2(stream: usize) -> i32;
        pub(crate) safe fn cuStreamSynchronize(stream: usize) -> i32;
        pub(crate) safe fn cuStreamQuery(stream: usize) -> i32;
        pub(crate) safe fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32;
        pub(crate) safe fn cuStreamAddCallback(
            stream: usize,
            function: usize,
            data: usize,
            flags: u32,
        ) -> i32;
        pub(crate) safe fn cuLaunchHostFunc(stream: usize, function: usize, data: usize) -> i32;
        pub(crate) safe fn cuEventCreate(event: Out<usize>, flags: u32) -> i32;
        pub(crate) safe fn cuEventDestroy_v2(event: usize) -> i32;
        pub(crate) safe fn cuEventRecord(event: usize, stream: usize) -> i32;
        pub(crate) safe fn cuEventQuery(event: usize) -> i32;
        pub(crate) safe fn cuEventSynchronize(event: usize) -> i32;
        pub(crate) safe fn cuEventElapsedTime(time: Out<f32>, start: usize, end: usize) -> i32;
        pub(crate) safe fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) -> i32;
        pub(crate) safe fn cuIpcOpenMemHandle_v2(
            address: Out<u64>,
            handle: IpcHandle,
            flags: u32,
        ) -> i32;
        pub(crate) safe fn cuIpcCloseMemHandle(address: u64) -> i32;
    }
}

// ---- Which GPU, and errors ----

thread_local! {
    static GPU: Cell<i32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The primary contexts that the runtime has retained, by GPU.
static RETAINED: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

/// Turns a result of the driver into a Rust one.
fn check(result: i32) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(result) }
}

/// Runs a function that needs no context; remembers its error.
fn always(body: impl FnOnce() -> Result<(), i32>) -> i32 {
    let result = body().err().unwrap_or(0);
    if result != 0 {
        LAST_ERROR.set(result);
    }
    result
}

/// Runs a function that needs the driver.
fn initialized(body: impl FnOnce() -> Result<(), i32>) -> i32 {
    always(|| {
        check(driver::cuInit(0))?;
        body()
    })
}

/// Runs a function in the context of the thread's GPU, or whichever the program has made current.
fn in_context(body: impl FnOnce() -> Result<(), i32>) -> i32 {
    initialized(|| {
        let mut gpu = 0;
        if driver::cuCtxGetDevice(Out::to(&mut gpu)) != 0 {
            use_gpu(GPU.get())?;
        }
        body()
    })
}

/// Does the same for one function of the driver.
fn call(body: impl FnOnce() -> i32) -> i32 {
    in_context(|| check(body()))
}

/// The primary context of a GPU, retained.
fn primary(gpu: i32) -> Result<usize, i32> {
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = retained.get(&gpu) {
        return Ok(*context);
    }
    let mut context = 0;
    check(driver::cuDevicePrimaryCtxRetain(Out::to(&mut context), gpu))?;
    retained.insert(gpu, context);
    Ok(context)
}

fn use_gpu(gpu: i32) -> Result<(), i32> {
    check(driver::cuCtxSetCurrent(primary(gpu)?))
}

fn forget(gpu: i32) {
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if retained.remove(&gpu).is_some() {
        driver::cuDevicePrimaryCtxRelease_v2(gpu);
    }
}

pub(crate) extern "C" fn cudaGetLastError() -> i32 {
    LAST_ERROR.replace(0)
}

pub(crate) extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

const NAMES: &[(i32, &CStr)] = &[
    (0, c"cudaSuccess"),
    (INVALID_VALUE, c"cudaErrorInvalidValue"),
    (2, c"cudaErrorMemoryAllocation"),
    (3, c"cudaErrorInitializationError"),
    (INVALID_SYMBOL, c"cudaErrorInvalidSymbol"),
    (INVALID_COPY_DIRECTION, c"cudaErrorInvalidMemcpyDirection"),
    (100, c"cudaErrorNoDevice"),
    (INVALID_DEVICE, c"cudaErrorInvalidDevice"),
    (INVALID_CONTEXT, c"cudaErrorDeviceUninitialized"),
    (205, c"cudaErrorMapBufferObjectFailed"),
    (NO_KERNEL_IMAGE, c"cudaErrorNoKernelImageForDevice"),
    (217, c"cudaErrorPeerAccessUnsupported"),
    (400, c"cudaErrorInvalidResourceHandle"),
    (500, c"cudaErrorSymbolNotFound"),
    (600, c"cudaErrorNotReady"),
    (700, c"cudaErrorIllegalAddress"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled"),
    (705, c"cudaErrorPeerAccessNotEnabled"),
    (709, c"cudaErrorContextIsDestroyed"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered"),
    (713, c"cudaErrorHostMemoryNotRegistered"),
    (719, c"cudaErrorLaunchFailure"),
    (801, c"cudaErrorNotSupported"),
    (999, c"cudaErrorUnknown"),
];

pub(crate) extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    let found = NAMES.iter().find(|(number, _)| *number == error);
    found
        .map_or(c"unrecognized error code", |(_, name)| name)
        .as_ptr()
}

pub(crate) extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    let mut text = ptr::null();
    match error {
        INVALID_SYMBOL => c"invalid device symbol".as_ptr(),
        INVALID_COPY_DIRECTION => c"invalid copy direction for memcpy".as_ptr(),
        _ if driver::cuGetErrorString(error, Out::to(&mut text)) == 0 => text,
        _ => c"unrecognized error code".as_ptr(),
    }
}

pub(crate) extern "C" fn cudaDriverGetVersion(version: Out<i32>) -> i32 {
    always(|| check(driver::cuDriverGetVersion(version)))
}

pub(crate) extern "C" fn cudaRuntimeGetVersion(version: Out<i32>) -> i32 {
    always(|| check(driver::cuDriverGetVersion(version)))
}

pub(crate) extern "C" fn cudaGetDriverEntryPoint(
    name: In<c_char>,
    function: Out<*const c_void>,
    flags: u64,
    status: Out<u32>,
) -> i32 {
    let version = gpus::config().cuda_version;
    cudaGetDriverEntryPointByVersion(name, function, version, flags, status)
}

pub(crate) extern "C" fn cudaGetDriverEntryPointByVersion(
    name: In<c_char>,
    function: Out<*const c_void>,
    version: u32,
    flags: u64,
    status: Out<u32>,
) -> i32 {
    initialized(|| {
        check(driver::cuGetProcAddress_v2(
            name,
            function,
            version as i32,
            flags,
            status,
        ))
    })
}

// ---- GPUs ----

pub(crate) extern "C" fn cudaGetDeviceCount(count: Out<i32>) -> i32 {
    always(|| {
        count.check().map_err(|error| error.0)?;
        count.set_if_wanted(0);
        check(driver::cuInit(0))?;
        check(driver::cuDeviceGetCount(count))
    })
}

pub(crate) extern "C" fn cudaSetDevice(gpu: i32) -> i32 {
    initialized(|| {
        use_gpu(gpu)?;
        GPU.set(gpu);
        Ok(())
    })
}

pub(crate) extern "C" fn cudaGetDevice(gpu: Out<i32>) -> i32 {
    initialized(|| gpu.set(GPU.get()).map_err(|error| error.0))
}

pub(crate) extern "C" fn cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, gpu: i32) -> i32 {
    initialized(|| check(driver::cuDeviceGetAttribute(value, attribute, gpu)))
}

pub(crate) extern "C" fn cudaDeviceGetPCIBusId(text: Out<c_char>, len: i32, gpu: i32) -> i32 {
    initialized(|| check(driver::cuDeviceGetPCIBusId(text, len, gpu)))
}

pub(crate) extern "C" fn cudaDeviceGetByPCIBusId(gpu: Out<i32>, text: In<c_char>) -> i32 {
    initialized(|| check(driver::cuDeviceGetByPCIBusId(gpu, text)))
}

pub(crate) extern "C" fn cudaDeviceCanAccessPeer(can: Out<i32>, gpu: i32, peer: i32) -> i32 {
    initialized(|| check(driver::cuDeviceCanAccessPeer(can, gpu, peer)))
}

pub(crate) extern "C" fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) -> i32 {
    in_context(|| check(driver::cuCtxEnablePeerAccess(primary(peer)?, flags)))
}

pub(crate) extern "C" fn cudaDeviceDisablePeerAccess(peer: i32) -> i32 {
    in_context(|| check(driver::cuCtxDisablePeerAccess(primary(peer)?)))
}

pub(crate) extern "C" fn cudaDeviceGetStreamPriorityRange(least: Out<i32>, most: Out<i32>) -> i32 {
    call(|| driver::cuCtxGetStreamPriorityRange(least, most))
}

pub(crate) extern "C" fn cudaDeviceSynchronize() -> i32 {
    call(|| driver::cuCtxSynchronize())
}

pub(crate) extern "C" fn cudaDeviceReset() -> i32 {
    initialized(|| {
        let result = check(driver::cuDevicePrimaryCtxReset_v2(GPU.get()));
        forget(GPU.get());
        result
    })
}

/// A member of cudaDeviceProp: where it is in CUDA 12 and 13, and which device attribute it shows.
struct Member {
    at: [Option<usize>; 2],
    attribute: i32,
    /// 4 or 8 bytes.
    size: usize,
}

const fn member(at_12: usize, at_13: usize, attribute: i32, size: usize) -> Member {
    Member {
        at: [Some(at_12), Some(at_13)],
        attribute,
        size,
    }
}

/// A member that CUDA 13 has not any more.
const fn old_member(at: usize, attribute: i32, size: usize) -> Member {
    Member {
        at: [Some(at), None],
        attribute,
        size,
    }
}

const MEMBERS: &[Member] = &[
    member(296, 296, 8, 8),  // sharedMemPerBlock
    member(304, 304, 12, 4), // regsPerBlock
    member(308, 308, 10, 4), // warpSize
    member(312, 312, 11, 8), // memPitch
    member(320, 320, 1, 4),  // maxThreadsPerBlock
    member(324, 324, 2, 4),  // maxThreadsDim
    member(328, 328, 3, 4),
    member(332, 332, 4, 4),
    member(336, 336, 5, 4), // maxGridSize
    member(340, 340, 6, 4),
    member(344, 344, 7, 4),
    old_member(348, 13, 4),   // clockRate
    member(352, 352, 9, 8),   // totalConstMem
    member(360, 360, 75, 4),  // major
    member(364, 364, 76, 4),  // minor
    member(368, 368, 14, 8),  // textureAlignment
    member(376, 376, 51, 8),  // texturePitchAlignment
    old_member(384, 15, 4),   // deviceOverlap
    member(388, 384, 16, 4),  // multiProcessorCount
    old_member(392, 17, 4),   // kernelExecTimeoutEnabled
    member(396, 388, 18, 4),  // integrated
    member(400, 392, 19, 4),  // canMapHostMemory
    old_member(404, 20, 4),   // computeMode
    member(568, 552, 30, 8),  // surfaceAlignment
    member(576, 560, 31, 4),  // concurrentKernels
    member(580, 564, 32, 4),  // ECCEnabled
    member(584, 568, 33, 4),  // pciBusID
    member(588, 572, 34, 4),  // pciDeviceID
    member(592, 576, 50, 4),  // pciDomainID
    member(596, 580, 35, 4),  // tccDriver
    member(600, 584, 40, 4),  // asyncEngineCount
    member(604, 588, 41, 4),  // unifiedAddressing
    old_member(608, 36, 4),   // memoryClockRate
    member(612, 592, 37, 4),  // memoryBusWidth
    member(616, 596, 38, 4),  // l2CacheSize
    member(624, 604, 39, 4),  // maxThreadsPerMultiProcessor
    member(628, 608, 78, 4),  // streamPrioritiesSupported
    member(632, 612, 79, 4),  // globalL1CacheSupported
    member(636, 616, 80, 4),  // localL1CacheSupported
    member(640, 624, 81, 8),  // sharedMemPerMultiprocessor
    member(648, 632, 82, 4),  // regsPerMultiprocessor
    member(652, 636, 83, 4),  // managedMemory
    member(656, 640, 84, 4),  // isMultiGpuBoard
    member(660, 644, 85, 4),  // multiGpuBoardGroupID
    member(664, 648, 86, 4),  // hostNativeAtomicSupported
    old_member(668, 87, 4),   // singleToDoublePrecisionPerfRatio
    member(672, 652, 88, 4),  // pageableMemoryAccess
    member(676, 656, 89, 4),  // concurrentManagedAccess
    member(680, 660, 90, 4),  // computePreemptionSupported
    member(684, 664, 91, 4),  // canUseHostPointerForRegisteredMem
    member(688, 668, 95, 4),  // cooperativeLaunch
    member(696, 672, 97, 8),  // sharedMemPerBlockOptin
    member(704, 680, 100, 4), // pageableMemoryAccessUsesHostPageTables
    member(708, 684, 101, 4), // directManagedMemAccessFromHost
    member(712, 688, 106, 4), // maxBlocksPerMultiProcessor
    member(720, 696, 111, 8), // reservedSharedMemPerBlock
    member(728, 704, 99, 4),  // hostRegisterSupported
    member(740, 716, 114, 4), // timelineSemaphoreInteropSupported
    member(744, 720, 115, 4), // memoryPoolsSupported
    member(748, 724, 116, 4), // gpuDirectRDMASupported
    member(752, 728, 117, 4), // gpuDirectRDMAFlushWritesOptions
    member(756, 732, 118, 4), // gpuDirectRDMAWritesOrdering
    member(760, 736, 119, 4), // memoryPoolSupportedHandleTypes
    member(768, 744, 125, 4), // ipcEventSupported
    member(772, 748, 120, 4), // clusterLaunch
];

/// Sizes of cudaDeviceProp in CUDA 12 and 13.
const PROPERTIES: [usize; 2] = [1032, 1008];

fn properties(to: Out<u8>, gpu: i32, layout: usize) -> i32 {
    initialized(|| {
        let mut count = 0;
        check(driver::cuDeviceGetCount(Out::to(&mut count)))?;
        if !(0..count).contains(&gpu) {
            return Err(INVALID_DEVICE);
        }
        let mut bytes = vec![0; PROPERTIES[layout]];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let mut name = [0; 256];
        check(driver::cuDeviceGetName(Out::first_of(&mut name), 256, gpu))?;
        put(0, &name.map(|c: c_char| c as u8));
        let mut uuid = [0; 16];
        check(driver::cuDeviceGetUuid_v2(Out::to(&mut uuid), gpu))?;
        put(256, &uuid);
        let mut memory = 0;
        check(driver::cuDeviceTotalMem_v2(Out::to(&mut memory), gpu))?;
        put(288, &memory.to_ne_bytes());
        for member in MEMBERS {
            let mut value = 0;
            let attribute = member.attribute;
            check(driver::cuDeviceGetAttribute(
                Out::to(&mut value),
                attribute,
                gpu,
            ))?;
            if let Some(at) = member.at[layout] {
                put(at, &i64::from(value).to_ne_bytes()[..member.size]);
            }
        }
        to.set_all(bytes.into_iter()).map_err(|error| error.0)
    })
}

/// Of CUDA 12, by the name that its header makes of cudaGetDeviceProperties.
pub(crate) extern "C" fn cudaGetDeviceProperties_v2(to: Out<u8>, gpu: i32) -> i32 {
    properties(to, gpu, 0)
}

/// Of CUDA 13.
pub(crate) extern "C" fn cudaGetDeviceProperties(to: Out<u8>, gpu: i32) -> i32 {
    properties(to, gpu, 1)
}

// ---- Memory ----

pub(crate) extern "C" fn cudaMalloc(address: Out<u64>, size: usize) -> i32 {
    call(|| match size {
        0 => address.set(0).err().map_or(0, |error| error.0),
        _ => driver::cuMemAlloc_v2(address, size),
    })
}

pub(crate) extern "C" fn cudaMallocPitch(
    address: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
) -> i32 {
    call(|| driver::cuMemAllocPitch_v2(address, pitch, width, height, 4))
}

pub(crate) extern "C" fn cudaMallocManaged(address: Out<u64>, size: usize, flags: u32) -> i32 {
    call(|| driver::cuMemAllocManaged(address, size, flags))
}

pub(crate) extern "C" fn cudaMallocAsync(address: Out<u64>, size: usize, stream: usize) -> i32 {
    call(|| driver::cuMemAllocAsync(address, size, stream))
}

pub(crate) extern "C" fn cudaFree(address: u64) -> i32 {
    call(|| driver::cuMemFree_v2(address))
}

pub(crate) extern "C" fn cudaFreeAsync(address: u64, stream: usize) -> i32 {
    call(|| driver::cuMemFreeAsync(address, stream))
}

pub(crate) extern "C" fn cudaHostAlloc(address: Out<usize>, size: usize, flags: u32) -> i32 {
    call(|| driver::cuMemHostAlloc(address, size, flags))
}

pub(crate) extern "C" fn cudaMallocHost(address: Out<usize>, size: usize) -> i32 {
    cudaHostAlloc(address, size, 0)
}

pub(crate) extern "C" fn cudaFreeHost(address: usize) -> i32 {
    call(|| driver::cuMemFreeHost(address))
}

pub(crate) extern "C" fn cudaHostRegister(address: usize, size: usize, flags: u32) -> i32 {
    call(|| driver::cuMemHostRegister_v2(address, size, flags))
}

pub(crate) extern "C" fn cudaHostUnregister(address: usize) -> i32 {
    call(|| driver::cuMemHostUnregister(address))
}

pub(crate) extern "C" fn cudaHostGetDevicePointer(
    device: Out<u64>,
    address: usize,
    flags: u32,
) -> i32 {
    call(|| driver::cuMemHostGetDevicePointer_v2(device, address, flags))
}

pub(crate) extern "C" fn cudaHostGetFlags(flags: Out<u32>, address: usize) -> i32 {
    call(|| driver::cuMemHostGetFlags(flags, address))
}

pub(crate) extern "C" fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) -> i32 {
    call(|| driver::cuMemGetInfo_v2(free, total))
}

/// The directions of cudaMemcpyKind: to and from the host and the GPU, or as the addresses say.
fn check_direction(kind: u32) -> Result<(), i32> {
    if kind <= 4 {
        Ok(())
    } else {
        Err(INVALID_COPY_DIRECTION)
    }
}

pub(crate) extern "C" fn cudaMemcpy(to: u64, from: u64, size: usize, kind: u32) -> i32 {
    in_context(|| {
        check_direction(kind)?;
        check(driver::cuMemcpy(to, from, size))
    })
}

pub(crate) extern "C" fn cudaMemcpyAsync(
    to: u64,
    from: u64,
    size: usize,
    kind: u32,
    stream: usize,
) -> i32 {
    in_context(|| {
        check_direction(kind)?;
        check(driver::cuMemcpyAsync(to, from, size, stream))
    })
}

pub(crate) extern "C" fn cudaMemset(address: u64, value: i32, size: usize) -> i32 {
    call(|| driver::cuMemsetD8_v2(address, value as u8, size))
}

pub(crate) extern "C" fn cudaMemsetAsync(
    address: u64,
    value: i32,
    size: usize,
    stream: usize,
) -> i32 {
    call(|| driver::cuMemsetD8Async(address, value as u8, size, stream))
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
fn attribute(number: u32, address: u64) -> Result<u64, i32> {
    let mut value = 0;
    check(driver::cuPointerGetAttribute(
        Out::to(&mut value),
        number,
        address,
    ))?;
    Ok(value)
}

pub(crate) extern "C" fn cudaPointerGetAttributes(to: Out<PointerAttributes>, address: u64) -> i32 {
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
    in_context(|| {
        let kind = match (
            attribute(MEMORY_TYPE, address),
            attribute(IS_MANAGED, address),
        ) {
            (Err(_), _) => UNREGISTERED,
            (_, Ok(1)) => MANAGED,
            (Ok(kind), _) if kind == u64::from(HOST) => HOST,
            _ => DEVICE,
        };
        let gpu = attribute(DEVICE_ORDINAL, address).map_or(NO_GPU, |gpu| gpu as i32);
        to.set(PointerAttributes {
            kind,
            gpu,
            device: if kind == UNREGISTERED { 0 } else { address },
            host: if kind == DEVICE { 0 } else { address },
        })
        .map_err(|error| error.0)
    })
}

pub(crate) extern "C" fn cudaIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) -> i32 {
    call(|| driver::cuIpcGetMemHandle(handle, address))
}

pub(crate) extern "C" fn cudaIpcOpenMemHandle(
    address: Out<u64>,
    handle: IpcHandle,
    flags: u32,
) -> i32 {
    call(|| driver::cuIpcOpenMemHandle_v2(address, handle, flags))
}

pub(crate) extern "C" fn cudaIpcCloseMemHandle(address: u64) -> i32 {
    call(|| driver::cuIpcCloseMemHandle(address))
}

// ---- Streams and events ----

pub(crate) extern "C" fn cudaStreamCreate(stream: Out<usize>) -> i32 {
    cudaStreamCreateWithFlags(stream, 0)
}

pub(crate) extern "C" fn cudaStreamCreateWithFlags(stream: Out<usize>, flags: u32) -> i32 {
    call(|| driver::cuStreamCreate(stream, flags))
}

pub(crate) extern "C" fn cudaStreamCreateWithPriority(
    stream: Out<usize>,
    flags: u32,
    priority: i32,
) -> i32 {
    call(|| driver::cuStreamCreateWithPriority(stream, flags, priority))
}

pub(crate) extern "C" fn cudaStreamDestroy(stream: usize) -> i32 {
    call(|| driver::cuStreamDestroy_v2(stream))
}

pub(crate) extern "C" fn cudaStreamSynchronize(stream: usize) -> i32 {
    call(|| driver::cuStreamSynchronize(stream))
}

pub(crate) extern "C" fn cudaStreamQuery(stream: usize) -> i32 {
    call(|| driver::cuStreamQuery(stream))
}

pub(crate) extern "C" fn cudaStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32 {
    call(|| driver::cuStreamWaitEvent(stream, event, flags))
}

pub(crate) extern "C" fn cudaStreamAddCallback(
    stream: usize,
    function: usize,
    data: usize,
    flags: u32,
) -> i32 {
    call(|| driver::cuStreamAddCallback(stream, function, data, flags))
}

pub(crate) extern "C" fn cudaLaunchHostFunc(stream: usize, function: usize, data: usize) -> i32 {
    call(|| driver::cuLaunchHostFunc(stream, function, data))
}

pub(crate) extern "C" fn cudaEventCreate(event: Out<usize>) -> i32 {
    cudaEventCreateWithFlags(event, 0)
}

pub(crate) extern "C" fn cudaEventCreateWithFlags(event: Out<usize>, flags: u32) -> i32 {
    call(|| driver::cuEventCreate(event, flags))
}

pub(crate) extern "C" fn cudaEventDestroy(event: usize) -> i32 {
    call(|| driver::cuEventDestroy_v2(event))
}

pub(crate) extern "C" fn cudaEventRecord(event: usize, stream: usize) -> i32 {
    call(|| driver::cuEventRecord(event, stream))
}

pub(crate) extern "C" fn cudaEventQuery(event: usize) -> i32 {
    call(|| driver::cuEventQuery(event))
}

pub(crate) extern "C" fn cudaEventSynchronize(event: usize) -> i32 {
    call(|| driver::cuEventSynchronize(event))
}

pub(crate) extern "C" fn cudaEventElapsedTime(time: Out<f32>, start: usize, end: usize) -> i32 {
    call(|| driver::cuEventElapsedTime(time, start, end))
}

// ---- What nvcc compiles into programs ----

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
    always(|| Err(NO_KERNEL_IMAGE))
}

pub(crate) extern "C" fn cudaLaunchKernel() -> i32 {
    in_context(|| Err(NO_KERNEL_IMAGE))
}

pub(crate) extern "C" fn cudaGetSymbolAddress(_address: Out<u64>, _symbol: usize) -> i32 {
    in_context(|| Err(INVALID_SYMBOL))
}

pub(crate) extern "C" fn cudaGetSymbolSize(_size: Out<usize>, _symbol: usize) -> i32 {
    in_context(|| Err(INVALID_SYMBOL))
}
