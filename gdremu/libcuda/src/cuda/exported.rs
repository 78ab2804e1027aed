//! The table of CUDA's functions by symbol, and by name and version; and of NVML's functions.

use std::ffi::c_void;

/// A function and the CUDA version that it came with.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) since: u32,
    pub(super) address: fn() -> *const c_void,
}

macro_rules! entries {
    ($($name:ident $since:literal $module:ident::$function:ident;)*) => {
        gdremu_preload::export! { $($module::$function;)* }

        pub(super) const ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            since: $since,
            address: || $function as *const c_void,
        }),*];
    };
}

entries! {
    cuCtxCreate 2000 unversioned::cuCtxCreate;
    cuCtxCreate 3020 context::cuCtxCreate_v2;
    cuCtxCreate 11040 context::cuCtxCreate_v3;
    cuCtxCreate 12050 context::cuCtxCreate_v4;
    cuCtxDestroy 2000 unversioned::cuCtxDestroy;
    cuCtxDestroy 4000 context::cuCtxDestroy_v2;
    cuCtxDisablePeerAccess 4000 peer::cuCtxDisablePeerAccess;
    cuCtxEnablePeerAccess 4000 peer::cuCtxEnablePeerAccess;
    cuCtxGetApiVersion 3020 context::cuCtxGetApiVersion;
    cuCtxGetCurrent 4000 context::cuCtxGetCurrent;
    cuCtxGetDevice 2000 context::cuCtxGetDevice;
    cuCtxGetDevice 13000 context::cuCtxGetDevice_v2;
    cuCtxGetFlags 7000 context::cuCtxGetFlags;
    cuCtxGetId 12000 context::cuCtxGetId;
    cuCtxGetStreamPriorityRange 5050 stream::cuCtxGetStreamPriorityRange;
    cuCtxPopCurrent 2000 unversioned::cuCtxPopCurrent;
    cuCtxPopCurrent 4000 context::cuCtxPopCurrent_v2;
    cuCtxPushCurrent 2000 unversioned::cuCtxPushCurrent;
    cuCtxPushCurrent 4000 context::cuCtxPushCurrent_v2;
    cuCtxSetCurrent 4000 context::cuCtxSetCurrent;
    cuCtxSetFlags 12010 context::cuCtxSetFlags;
    cuCtxSynchronize 2000 context::cuCtxSynchronize;
    cuCtxSynchronize 13000 context::cuCtxSynchronize_v2;
    cuDeviceCanAccessPeer 4000 peer::cuDeviceCanAccessPeer;
    cuDeviceComputeCapability 2000 device::cuDeviceComputeCapability;
    cuDeviceGet 2000 device::cuDeviceGet;
    cuDeviceGetAttribute 2000 device::cuDeviceGetAttribute;
    cuDeviceGetByPCIBusId 4010 device::cuDeviceGetByPCIBusId;
    cuDeviceGetCount 2000 device::cuDeviceGetCount;
    cuDeviceGetDefaultMemPool 11020 pool::cuDeviceGetDefaultMemPool;
    cuDeviceGetMemPool 11020 pool::cuDeviceGetMemPool;
    cuDeviceGetName 2000 device::cuDeviceGetName;
    cuDeviceGetP2PAttribute 8000 peer::cuDeviceGetP2PAttribute;
    cuDeviceGetPCIBusId 4010 device::cuDeviceGetPCIBusId;
    cuDeviceGetUuid 9020 unversioned::cuDeviceGetUuid;
    cuDeviceGetUuid 11040 device::cuDeviceGetUuid_v2;
    cuDevicePrimaryCtxGetState 7000 primary::cuDevicePrimaryCtxGetState;
    cuDevicePrimaryCtxRelease 7000 unversioned::cuDevicePrimaryCtxRelease;
    cuDevicePrimaryCtxRelease 11000 primary::cuDevicePrimaryCtxRelease_v2;
    cuDevicePrimaryCtxReset 7000 unversioned::cuDevicePrimaryCtxReset;
    cuDevicePrimaryCtxReset 11000 primary::cuDevicePrimaryCtxReset_v2;
    cuDevicePrimaryCtxRetain 7000 primary::cuDevicePrimaryCtxRetain;
    cuDevicePrimaryCtxSetFlags 7000 unversioned::cuDevicePrimaryCtxSetFlags;
    cuDevicePrimaryCtxSetFlags 11000 primary::cuDevicePrimaryCtxSetFlags_v2;
    cuDeviceSetMemPool 11020 pool::cuDeviceSetMemPool;
    cuDeviceTotalMem 3020 device::cuDeviceTotalMem_v2;
    cuDriverGetVersion 2020 init::cuDriverGetVersion;
    cuEventCreate 2000 event::cuEventCreate;
    cuEventDestroy 2000 unversioned::cuEventDestroy;
    cuEventDestroy 4000 event::cuEventDestroy_v2;
    cuEventElapsedTime 2000 event::cuEventElapsedTime;
    cuEventElapsedTime 12080 event::cuEventElapsedTime_v2;
    cuEventQuery 2000 event::cuEventQuery;
    cuEventRecord 2000 event::cuEventRecord;
    cuEventRecordWithFlags 11010 event::cuEventRecordWithFlags;
    cuEventSynchronize 2000 event::cuEventSynchronize;
    cuFlushGPUDirectRDMAWrites 11030 peer::cuFlushGPUDirectRDMAWrites;
    cuGetErrorName 6000 error_text::cuGetErrorName;
    cuGetErrorString 6000 error_text::cuGetErrorString;
    cuGetProcAddress 11030 proc_address::cuGetProcAddress;
    cuGetProcAddress 12000 proc_address::cuGetProcAddress_v2;
    cuInit 2000 init::cuInit;
    cuIpcCloseMemHandle 4010 ipc::cuIpcCloseMemHandle;
    cuIpcGetMemHandle 4010 ipc::cuIpcGetMemHandle;
    cuIpcOpenMemHandle 11000 ipc::cuIpcOpenMemHandle_v2;
    cuLaunchCooperativeKernel 9000 kernel::cuLaunchCooperativeKernel;
    cuLaunchHostFunc 10000 stream::cuLaunchHostFunc;
    cuLaunchHostFunc 13010 stream::cuLaunchHostFunc_v2;
    cuLaunchKernel 4000 kernel::cuLaunchKernel;
    cuLibraryGetGlobal 12000 module::cuLibraryGetGlobal;
    cuMemAddressFree 10020 vmm::cuMemAddressFree;
    cuMemAddressReserve 10020 vmm::cuMemAddressReserve;
    cuMemAlloc 3020 buffer::cuMemAlloc_v2;
    cuMemAllocAsync 11020 pool::cuMemAllocAsync;
    cuMemAllocFromPoolAsync 11020 pool::cuMemAllocFromPoolAsync;
    cuMemAllocHost 3020 host::cuMemAllocHost_v2;
    cuMemAllocManaged 6000 host::cuMemAllocManaged;
    cuMemAllocPitch 3020 buffer::cuMemAllocPitch_v2;
    cuMemCreate 10020 vmm::cuMemCreate;
    cuMemExportToShareableHandle 10020 export::cuMemExportToShareableHandle;
    cuMemFree 3020 buffer::cuMemFree_v2;
    cuMemFreeAsync 11020 pool::cuMemFreeAsync;
    cuMemFreeHost 2000 host::cuMemFreeHost;
    cuMemGetAccess 10020 vmm::cuMemGetAccess;
    cuMemGetAddressRange 3020 buffer::cuMemGetAddressRange_v2;
    cuMemGetAllocationGranularity 10020 vmm::cuMemGetAllocationGranularity;
    cuMemGetAllocationPropertiesFromHandle 10020 vmm::cuMemGetAllocationPropertiesFromHandle;
    cuMemGetHandleForAddressRange 11070 export::cuMemGetHandleForAddressRange;
    cuMemGetInfo 3020 buffer::cuMemGetInfo_v2;
    cuMemHostAlloc 2020 host::cuMemHostAlloc;
    cuMemHostGetDevicePointer 3020 host::cuMemHostGetDevicePointer_v2;
    cuMemHostGetFlags 2030 host::cuMemHostGetFlags;
    cuMemHostRegister 4000 unversioned::cuMemHostRegister;
    cuMemHostRegister 6050 host::cuMemHostRegister_v2;
    cuMemHostUnregister 4000 host::cuMemHostUnregister;
    cuMemImportFromShareableHandle 10020 export::cuMemImportFromShareableHandle;
    cuMemMap 10020 vmm::cuMemMap;
    cuMemPoolCreate 11020 pool::cuMemPoolCreate;
    cuMemPoolDestroy 11020 pool::cuMemPoolDestroy;
    cuMemPoolExportPointer 11020 ipc::cuMemPoolExportPointer;
    cuMemPoolExportToShareableHandle 11020 ipc::cuMemPoolExportToShareableHandle;
    cuMemPoolGetAccess 11020 pool::cuMemPoolGetAccess;
    cuMemPoolGetAttribute 11020 pool::cuMemPoolGetAttribute;
    cuMemPoolImportFromShareableHandle 11020 ipc::cuMemPoolImportFromShareableHandle;
    cuMemPoolImportPointer 11020 ipc::cuMemPoolImportPointer;
    cuMemPoolSetAccess 11020 pool::cuMemPoolSetAccess;
    cuMemPoolSetAttribute 11020 pool::cuMemPoolSetAttribute;
    cuMemPoolTrimTo 11020 pool::cuMemPoolTrimTo;
    cuMemRangeGetAttribute 8000 pointer::cuMemRangeGetAttribute;
    cuMemRelease 10020 vmm::cuMemRelease;
    cuMemRetainAllocationHandle 11000 vmm::cuMemRetainAllocationHandle;
    cuMemSetAccess 10020 vmm::cuMemSetAccess;
    cuMemUnmap 10020 vmm::cuMemUnmap;
    cuMemcpy 4000 copy::cuMemcpy;
    cuMemcpyAsync 4000 copy::cuMemcpyAsync;
    cuMemcpyDtoD 3020 copy::cuMemcpyDtoD_v2;
    cuMemcpyDtoDAsync 3020 copy::cuMemcpyDtoDAsync_v2;
    cuMemcpyDtoH 3020 copy::cuMemcpyDtoH_v2;
    cuMemcpyDtoHAsync 3020 copy::cuMemcpyDtoHAsync_v2;
    cuMemcpyHtoD 3020 copy::cuMemcpyHtoD_v2;
    cuMemcpyHtoDAsync 3020 copy::cuMemcpyHtoDAsync_v2;
    cuMemcpyPeer 4000 copy::cuMemcpyPeer;
    cuMemcpyPeerAsync 4000 copy::cuMemcpyPeerAsync;
    cuMemsetD16 3020 fill::cuMemsetD16_v2;
    cuMemsetD16Async 3020 fill::cuMemsetD16Async;
    cuMemsetD32 3020 fill::cuMemsetD32_v2;
    cuMemsetD32Async 3020 fill::cuMemsetD32Async;
    cuMemsetD8 3020 fill::cuMemsetD8_v2;
    cuMemsetD8Async 3020 fill::cuMemsetD8Async;
    cuModuleGetFunction 2000 module::cuModuleGetFunction;
    cuModuleGetGlobal 3020 module::cuModuleGetGlobal_v2;
    cuModuleLoadData 2000 module::cuModuleLoadData;
    cuPointerGetAttribute 4000 pointer::cuPointerGetAttribute;
    cuPointerGetAttributes 7000 pointer::cuPointerGetAttributes;
    cuPointerSetAttribute 6000 pointer::cuPointerSetAttribute;
    cuStreamAddCallback 5000 stream::cuStreamAddCallback;
    cuStreamCreate 2000 stream::cuStreamCreate;
    cuStreamCreateWithPriority 5050 stream::cuStreamCreateWithPriority;
    cuStreamDestroy 2000 unversioned::cuStreamDestroy;
    cuStreamDestroy 4000 stream::cuStreamDestroy_v2;
    cuStreamGetCtx 9020 stream::cuStreamGetCtx;
    cuStreamGetCtx 12050 stream::cuStreamGetCtx_v2;
    cuStreamGetFlags 5050 stream::cuStreamGetFlags;
    cuStreamGetPriority 5050 stream::cuStreamGetPriority;
    cuStreamIsCapturing 10000 stream::cuStreamIsCapturing;
    cuStreamQuery 2000 stream::cuStreamQuery;
    cuStreamSynchronize 2000 stream::cuStreamSynchronize;
    cuStreamWaitEvent 3020 stream::cuStreamWaitEvent;
}

gdremu_preload::export! {
    nvml::nvmlDeviceGetBAR1MemoryInfo;
    nvml::nvmlDeviceGetCount;
    nvml::nvmlDeviceGetCount_v2;
    nvml::nvmlDeviceGetCudaComputeCapability;
    nvml::nvmlDeviceGetCurrPcieLinkGeneration;
    nvml::nvmlDeviceGetCurrPcieLinkWidth;
    nvml::nvmlDeviceGetFieldValues;
    nvml::nvmlDeviceGetGpuFabricInfo;
    nvml::nvmlDeviceGetGpuFabricInfoV;
    nvml::nvmlDeviceGetHandleByIndex;
    nvml::nvmlDeviceGetHandleByIndex_v2;
    nvml::nvmlDeviceGetHandleByPciBusId;
    nvml::nvmlDeviceGetHandleByPciBusId_v2;
    nvml::nvmlDeviceGetHandleByUUID;
    nvml::nvmlDeviceGetIndex;
    nvml::nvmlDeviceGetMaxMigDeviceCount;
    nvml::nvmlDeviceGetMaxPcieLinkGeneration;
    nvml::nvmlDeviceGetMaxPcieLinkWidth;
    nvml::nvmlDeviceGetMemoryInfo;
    nvml::nvmlDeviceGetMigMode;
    nvml::nvmlDeviceGetMinorNumber;
    nvml::nvmlDeviceGetName;
    nvml::nvmlDeviceGetNvLinkCapability;
    nvml::nvmlDeviceGetNvLinkRemotePciInfo;
    nvml::nvmlDeviceGetNvLinkRemotePciInfo_v2;
    nvml::nvmlDeviceGetNvLinkState;
    nvml::nvmlDeviceGetP2PStatus;
    nvml::nvmlDeviceGetPciInfo;
    nvml::nvmlDeviceGetPciInfo_v2;
    nvml::nvmlDeviceGetPciInfo_v3;
    nvml::nvmlDeviceGetUUID;
    nvml::nvmlErrorString;
    nvml::nvmlInit;
    nvml::nvmlInitWithFlags;
    nvml::nvmlInit_v2;
    nvml::nvmlShutdown;
    nvml::nvmlSystemGetCudaDriverVersion;
    nvml::nvmlSystemGetCudaDriverVersion_v2;
    nvml::nvmlSystemGetDriverVersion;
    nvml::nvmlSystemGetNVMLVersion;
}

gdremu_preload::export! {
    runtime::__cudaPopCallConfiguration;
    runtime::__cudaPushCallConfiguration;
    runtime::__cudaRegisterFatBinary;
    runtime::__cudaRegisterFatBinaryEnd;
    runtime::__cudaRegisterFunction;
    runtime::__cudaRegisterVar;
    runtime::__cudaUnregisterFatBinary;
    runtime::cudaDeviceCanAccessPeer;
    runtime::cudaDeviceDisablePeerAccess;
    runtime::cudaDeviceEnablePeerAccess;
    runtime::cudaDeviceGetAttribute;
    runtime::cudaDeviceGetByPCIBusId;
    runtime::cudaDeviceGetPCIBusId;
    runtime::cudaDeviceGetStreamPriorityRange;
    runtime::cudaDeviceReset;
    runtime::cudaDeviceSynchronize;
    runtime::cudaDriverGetVersion;
    runtime::cudaEventCreate;
    runtime::cudaEventCreateWithFlags;
    runtime::cudaEventDestroy;
    runtime::cudaEventElapsedTime;
    runtime::cudaEventQuery;
    runtime::cudaEventRecord;
    runtime::cudaEventSynchronize;
    runtime::cudaFree;
    runtime::cudaFreeAsync;
    runtime::cudaFreeHost;
    runtime::cudaGetDevice;
    runtime::cudaGetDeviceCount;
    runtime::cudaGetDeviceProperties;
    runtime::cudaGetDeviceProperties_v2;
    runtime::cudaGetDriverEntryPoint;
    runtime::cudaGetDriverEntryPointByVersion;
    runtime::cudaGetErrorName;
    runtime::cudaGetErrorString;
    runtime::cudaGetLastError;
    runtime::cudaGetSymbolAddress;
    runtime::cudaGetSymbolSize;
    runtime::cudaHostAlloc;
    runtime::cudaHostGetDevicePointer;
    runtime::cudaHostGetFlags;
    runtime::cudaHostRegister;
    runtime::cudaHostUnregister;
    runtime::cudaIpcCloseMemHandle;
    runtime::cudaIpcGetMemHandle;
    runtime::cudaIpcOpenMemHandle;
    runtime::cudaLaunchHostFunc;
    runtime::cudaLaunchKernel;
    runtime::cudaMalloc;
    runtime::cudaMallocAsync;
    runtime::cudaMallocHost;
    runtime::cudaMallocManaged;
    runtime::cudaMallocPitch;
    runtime::cudaMemGetInfo;
    runtime::cudaMemcpy;
    runtime::cudaMemcpyAsync;
    runtime::cudaMemset;
    runtime::cudaMemsetAsync;
    runtime::cudaPeekAtLastError;
    runtime::cudaPointerGetAttributes;
    runtime::cudaRuntimeGetVersion;
    runtime::cudaSetDevice;
    runtime::cudaStreamAddCallback;
    runtime::cudaStreamCreate;
    runtime::cudaStreamCreateWithFlags;
    runtime::cudaStreamCreateWithPriority;
    runtime::cudaStreamDestroy;
    runtime::cudaStreamQuery;
    runtime::cudaStreamSynchronize;
    runtime::cudaStreamWaitEvent;
}
