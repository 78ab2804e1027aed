//! The functions of libcuda and libcudart that gdremu does not have. Each fails, and prints its name the first time.
//!
//! The names are those that libcuda.so.1 of driver 580.159.04 and libcudart.so of CUDA 12.9 and 13.5 export.
//! cuGetProcAddress does not find them, so programs that ask it for a function go on without that function.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::runtime;

/// Returns CUDA_ERROR_NOT_SUPPORTED, or in the runtime cudaErrorNotSupported.
fn refuse(symbol: &str, said: &AtomicBool) -> i32 {
    const NOT_SUPPORTED: i32 = 801;

    if !said.swap(true, Ordering::Relaxed) {
        eprintln!("gdremu: {symbol} is not supported");
    }
    if symbol.contains("cuda") {
        runtime::remember(NOT_SUPPORTED);
    }
    NOT_SUPPORTED
}

/// Exports failing functions. A name is one of the beginnings before the colon followed by one of the words after it:
/// `"cu" "cuda": GraphClone` exports cuGraphClone and cudaGraphClone. A word can have suffixes in parentheses, and each
/// suffix makes one more name.
macro_rules! refused {
    ($($($begin:literal)+: $($end:ident $(($($suffix:ident)*))?)*;)*) => {
        $(refused!(@ [$($begin)+] $($end $(($($suffix)*))?)*);)*
    };
    (@ [$first:literal $($more:literal)+] $($names:tt)*) => {
        refused!(@ [$first] $($names)*);
        refused!(@ [$($more)+] $($names)*);
    };
    (@ [$begin:literal] $($end:ident $(($($suffix:ident)*))?)*) => {$(
        refused!(= concat!($begin, stringify!($end)));
        $($(refused!(= concat!($begin, stringify!($end), stringify!($suffix)));)*)?
    )*};
    (= $symbol:expr) => {
        const _: () = {
            extern "C" fn function() -> i32 {
                static SAID: AtomicBool = AtomicBool::new(false);
                refuse($symbol, &SAID)
            }
            gdremu_preload::entry_point!($symbol, entry = function);
        };
    };
}

// Some symbols here, such as cuMemFree, are old versions. gdremu has the new version, whose symbol ends with _v2.
refused! {
    "cu" "cuda": ArrayGetMemoryRequirements ArrayGetPlane ArrayGetSparseProperties CtxResetPersistingL2Cache
        DestroyExternalMemory DestroyExternalSemaphore DevResourceGenerateDesc DevSmResourceSplitByCount
        DeviceGetDefaultMemPool DeviceGetDevResource DeviceGetGraphMemAttribute DeviceGetHostAtomicCapabilities
        DeviceGetMemPool DeviceGetNvSciSyncAttributes DeviceGetP2PAtomicCapabilities DeviceGetP2PAttribute
        DeviceGetTexture1DLinearMaxWidth DeviceGraphMemTrim DeviceRegisterAsyncNotification DeviceSetGraphMemAttribute
        DeviceSetMemPool DeviceUnregisterAsyncNotification EventRecordWithFlags_ptsz EventRecord_ptsz
        ExternalMemoryGetMappedBuffer ExternalMemoryGetMappedMipmappedArray FuncGetName FuncGetParamInfo
        FuncSetAttribute FuncSetCacheConfig FuncSetSharedMemConfig GLRegisterBufferObject GLSetBufferObjectMapFlags
        GLUnmapBufferObject GLUnmapBufferObjectAsync GLUnregisterBufferObject GreenCtxCreate
        ImportExternalMemory ImportExternalSemaphore IpcGetEventHandle IpcOpenEventHandle
        LaunchCooperativeKernelMultiDevice LaunchCooperativeKernel_ptsz LaunchHostFunc_ptsz LaunchHostFunc_v2
        LaunchKernel_ptsz LibraryEnumerateKernels LibraryGetGlobal LibraryGetKernel LibraryGetKernelCount
        LibraryGetManaged LibraryGetUnifiedFunction LibraryLoadData LibraryLoadFromFile LibraryUnload LogsCurrent
        LogsDumpToFile LogsDumpToMemory LogsRegisterCallback LogsUnregisterCallback MemAdvise(_v2)
        MemDiscardAndPrefetchBatchAsync(_ptsz) MemDiscardBatchAsync(_ptsz) MemGetDefaultMemPool MemGetMemPool
        MemPoolCreate MemPoolDestroy MemPoolExportPointer MemPoolExportToShareableHandle MemPoolGetAccess
        MemPoolGetAttribute MemPoolImportFromShareableHandle MemPoolImportPointer MemPoolSetAccess MemPoolSetAttribute
        MemPoolTrimTo MemPrefetchAsync(_ptsz _v2 _v2_ptsz) MemPrefetchBatchAsync(_ptsz) MemRangeGetAttributes
        MemSetMemPool Memcpy3DPeer(_ptds) Memcpy3DPeerAsync(_ptsz) MemcpyAsync_ptsz Memcpy_ptds
        MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties OccupancyAvailableDynamicSMemPerBlock
        OccupancyMaxActiveClusters OccupancyMaxPotentialClusterSize ProfilerStart ProfilerStop
        StreamAttachMemAsync(_ptsz) StreamBeginCaptureToGraph(_ptsz) StreamCopyAttributes(_ptsz)
        StreamGetAttribute(_ptsz) StreamGetCaptureInfo(_ptsz _v2 _v2_ptsz _v3 _v3_ptsz) StreamGetDevice(_ptsz)
        StreamGetFlags(_ptsz) StreamGetId(_ptsz) StreamGetPriority(_ptsz) StreamIsCapturing_ptsz StreamQuery_ptsz
        StreamSetAttribute(_ptsz) StreamSynchronize_ptsz StreamUpdateCaptureDependencies(_ptsz _v2 _v2_ptsz)
        StreamWaitEvent_ptsz UserObjectCreate UserObjectRelease UserObjectRetain VDPAUGetDevice;
    "cuGraphExec" "cudaGraphExec": ChildGraphNodeSetParams Destroy EventRecordNodeSetEvent EventWaitNodeSetEvent
        ExternalSemaphoresSignalNodeSetParams ExternalSemaphoresWaitNodeSetParams GetFlags HostNodeSetParams
        MemcpyNodeSetParams MemsetNodeSetParams NodeSetParams;
    "cuGraph" "cudaGraph": AddChildGraphNode AddDependencies(_v2) AddEmptyNode AddEventRecordNode AddEventWaitNode
        AddExternalSemaphoresSignalNode AddExternalSemaphoresWaitNode AddHostNode AddMemAllocNode AddMemFreeNode
        AddMemcpyNode AddMemsetNode AddNode(_v2) ChildGraphNodeGetGraph Clone Create DebugDotPrint Destroy DestroyNode
        EventRecordNodeGetEvent EventRecordNodeSetEvent EventWaitNodeGetEvent EventWaitNodeSetEvent
        ExternalSemaphoresSignalNodeGetParams ExternalSemaphoresSignalNodeSetParams ExternalSemaphoresWaitNodeGetParams
        ExternalSemaphoresWaitNodeSetParams GetEdges(_v2) GetNodes GetRootNodes HostNodeGetParams HostNodeSetParams
        InstantiateWithFlags InstantiateWithParams(_ptsz) KernelNodeCopyAttributes KernelNodeGetAttribute
        KernelNodeSetAttribute Launch(_ptsz) MemAllocNodeGetParams MemFreeNodeGetParams MemcpyNodeGetParams
        MemcpyNodeSetParams MemsetNodeGetParams MemsetNodeSetParams NodeFindInClone NodeGetDependencies(_v2)
        NodeGetDependentNodes(_v2) NodeGetEnabled NodeGetType NodeSetEnabled NodeSetParams ReleaseUserObject
        RemoveDependencies(_v2) RetainUserObject Upload(_ptsz) icsEGLRegisterImage icsGLRegisterBuffer
        icsGLRegisterImage icsResourceGetMappedEglFrame icsResourceGetMappedMipmappedArray icsSubResourceGetMappedArray
        icsUnregisterResource icsVDPAURegisterOutputSurface icsVDPAURegisterVideoSurface;
    "cuEGLStream" "cudaEGLStream": ConsumerAcquireFrame ConsumerConnect ConsumerConnectWithFlags ConsumerDisconnect
        ConsumerReleaseFrame ProducerConnect ProducerDisconnect ProducerPresentFrame ProducerReturnFrame;
    "cu": Array3DCreate(_v2) Array3DGetDescriptor(_v2) ArrayCreate(_v2) ArrayDestroy ArrayGetDescriptor(_v2)
        CoredumpGetAttribute CoredumpGetAttributeGlobal CoredumpSetAttribute CoredumpSetAttributeGlobal CtxAttach
        CtxDetach CtxDisablePeerAccess CtxEnablePeerAccess CtxFromGreenCtx CtxGetCacheConfig CtxGetDevResource
        CtxGetLimit CtxGetSharedMemConfig CtxRecordEvent CtxSetCacheConfig CtxSetLimit CtxSetSharedMemConfig
        CtxWaitEvent DeviceGetExecAffinitySupport DeviceGetLuid DeviceGetProperties DeviceTotalMem EGLApiInit
        FuncGetModule FuncIsLoaded FuncLoad FuncSetBlockShape FuncSetSharedSize GLCtxCreate(_v2) GLGetDevices(_v2)
        GLInit GLMapBufferObject(_v2 _v2_ptds) GLMapBufferObjectAsync(_v2 _v2_ptsz) GreenCtxDestroy
        GreenCtxGetDevResource GreenCtxGetId GreenCtxRecordEvent GreenCtxStreamCreate GreenCtxWaitEvent IpcOpenMemHandle
        KernelGetAttribute KernelGetFunction KernelGetLibrary KernelGetName KernelGetParamInfo KernelSetAttribute
        KernelSetCacheConfig Launch LaunchGrid LaunchGridAsync LaunchKernelEx(_ptsz) LibraryGetModule LinkAddData(_v2)
        LinkAddFile(_v2) LinkComplete LinkCreate(_v2) LinkDestroy MipmappedArrayCreate MipmappedArrayDestroy
        MipmappedArrayGetLevel ModuleEnumerateFunctions ModuleGetFunctionCount ModuleGetGlobal ModuleGetLoadingMode
        ModuleGetSurfRef ModuleGetTexRef ModuleLoad MulticastAddDevice MulticastBindAddr MulticastBindMem
        MulticastCreate MulticastGetGranularity MulticastUnbind OccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        OccupancyMaxPotentialBlockSizeWithFlags ParamSetSize ParamSetTexRef ParamSetf ParamSeti ParamSetv
        ProfilerInitialize SignalExternalSemaphoresAsync(_ptsz) StreamAddCallback_ptsz StreamBatchMemOp(_ptsz _v2
        _v2_ptsz) StreamBeginCapture(_ptsz _v2_ptsz) StreamEndCapture_ptsz StreamGetCtx(_ptsz _v2 _v2_ptsz)
        StreamGetGreenCtx StreamWaitValue32(_ptsz _v2 _v2_ptsz) StreamWaitValue64(_ptsz _v2 _v2_ptsz)
        StreamWriteValue32(_ptsz _v2 _v2_ptsz) StreamWriteValue64(_ptsz _v2 _v2_ptsz) SurfObjectCreate SurfObjectDestroy
        SurfObjectGetResourceDesc SurfRefGetArray SurfRefSetArray TensorMapEncodeIm2col TensorMapEncodeIm2colWide
        TensorMapEncodeTiled TensorMapReplaceAddress TexObjectCreate TexObjectDestroy TexObjectGetResourceDesc
        TexObjectGetResourceViewDesc TexObjectGetTextureDesc VDPAUCtxCreate(_v2) WaitExternalSemaphoresAsync(_ptsz);
    "cuGraph": AddBatchMemOpNode AddKernelNode(_v2) BatchMemOpNodeGetParams BatchMemOpNodeSetParams
        ConditionalHandleCreate ExecBatchMemOpNodeSetParams ExecKernelNodeSetParams(_v2) ExecUpdate(_v2)
        Instantiate(_v2) KernelNodeGetParams(_v2) KernelNodeSetParams(_v2) icsMapResources(_ptsz)
        icsResourceGetMappedPointer(_v2) icsResourceSetMapFlags(_v2) icsUnmapResources(_ptsz);
    "cuTexRef": Create Destroy GetAddress(_v2) GetAddressMode GetArray GetBorderColor GetFilterMode GetFlags GetFormat
        GetMaxAnisotropy GetMipmapFilterMode GetMipmapLevelBias GetMipmapLevelClamp GetMipmappedArray SetAddress(_v2)
        SetAddress2D(_v2 _v3) SetAddressMode SetArray SetBorderColor SetFilterMode SetFlags SetFormat SetMaxAnisotropy
        SetMipmapFilterMode SetMipmapLevelBias SetMipmapLevelClamp SetMipmappedArray;
    "cuMemcpy": AtoA(_v2 _v2_ptds) AtoD(_v2 _v2_ptds) AtoH(_v2 _v2_ptds) AtoHAsync(_v2 _v2_ptsz) BatchAsync(_ptsz _v2
        _v2_ptsz) DtoA(_v2 _v2_ptds) DtoD(_v2_ptds) DtoDAsync(_v2_ptsz) DtoH(_v2_ptds) DtoHAsync(_v2_ptsz) HtoA(_v2
        _v2_ptds) HtoAAsync(_v2 _v2_ptsz) HtoD(_v2_ptds) HtoDAsync(_v2_ptsz) Peer_ptds PeerAsync_ptsz;
    "cuMem": AllocAsync_ptsz AllocFromPoolAsync(_ptsz) AllocHost AllocPitch(_v2) BatchDecompressAsync(_ptsz)
        ExportToShareableHandle Free FreeAsync_ptsz GetAccess GetAddressRange GetAttribute(_v2) GetInfo
        HostGetDevicePointer ImportFromShareableHandle MapArrayAsync(_ptsz) cpy2D(_v2 _v2_ptds) cpy2DAsync(_v2 _v2_ptsz)
        cpy2DUnaligned(_v2 _v2_ptds) cpy3D(_v2 _v2_ptds) cpy3DAsync(_v2 _v2_ptsz) cpy3DBatchAsync(_ptsz _v2 _v2_ptsz)
        setD16(_v2 _v2_ptds) setD16Async(_ptsz) setD2D16(_v2 _v2_ptds) setD2D16Async(_ptsz) setD2D32(_v2 _v2_ptds)
        setD2D32Async(_ptsz) setD2D8(_v2 _v2_ptds) setD2D8Async(_ptsz) setD32(_v2_ptds) setD32Async(_ptsz)
        setD8(_v2_ptds) setD8Async_ptsz;
    "cuCheckpointProcess": Checkpoint GetRestoreThreadId GetState Lock Restore Unlock;
    "cuda": ArrayGetInfo GetExportTable ChooseDevice CreateChannelDesc CreateSurfaceObject CreateTextureObject DestroySurfaceObject
        DestroyTextureObject DevSmResourceSplit EventCreateFromEGLSync EventElapsedTime_v2 FreeArray FreeAsync_ptsz
        FreeMipmappedArray FuncGetParamCount GLGetDevices GLMapBufferObject GLMapBufferObjectAsync GLSetGLDevice
        GetChannelDesc GetDeviceFlags GetDriverEntryPointByVersion_ptsz GetDriverEntryPoint_ptsz GetFuncBySymbol
        GetMipmappedArrayLevel GetSurfaceObjectResourceDesc GetTextureObjectResourceDesc
        GetTextureObjectResourceViewDesc GetTextureObjectTextureDesc HostGetFlags InitDevice KernelSetAttributeForDevice
        LaunchHostFunc_v2_ptsz LaunchKernelExC_ptsz Malloc3D Malloc3DArray MallocArray MallocAsync_ptsz
        MallocFromPoolAsync(_ptsz) MallocMipmappedArray MallocPitch MemGetLocationInfo MemRangeGetAttribute
        Memcpy2D(_ptds) Memcpy2DArrayToArray(_ptds) Memcpy2DAsync(_ptsz) Memcpy2DFromArray(_ptds)
        Memcpy2DFromArrayAsync(_ptsz) Memcpy2DToArray(_ptds) Memcpy2DToArrayAsync(_ptsz) Memcpy3D(_ptds)
        Memcpy3DAsync(_ptsz) Memcpy3DBatchAsync(_ptsz) Memcpy3DWithAttributesAsync(_ptsz) MemcpyArrayToArray(_ptds)
        MemcpyBatchAsync(_ptsz) MemcpyFromArray(_ptds) MemcpyFromArrayAsync(_ptsz) MemcpyFromSymbolAsync(_ptsz)
        MemcpyFromSymbol_ptds MemcpyToArray(_ptds) MemcpyToArrayAsync(_ptsz) MemcpyToSymbolAsync(_ptsz)
        MemcpyToSymbol_ptds MemcpyWithAttributesAsync(_ptsz) Memset2D(_ptds) Memset2DAsync(_ptsz) Memset3D(_ptds)
        Memset3DAsync(_ptsz) MemsetAsync_ptsz Memset_ptds OccupancyMaxActiveBlocksPerMultiprocessor SetDoubleForDevice
        SetDoubleForHost SetValidDevices SignalExternalSemaphoresAsync(_ptsz _v2 _v2_ptsz) StreamAddCallback(_ptsz)
        StreamBeginCapture(_ptsz) StreamBeginRecaptureToGraph(_ptsz) StreamEndCapture(_ptsz) StreamGetDevResource(_ptsz)
        SubgridCreate SubgridWorkerGridCreate SubgridWorksetCreate ThreadExit ThreadGetCacheConfig ThreadGetLimit
        ThreadSetCacheConfig ThreadSetLimit ThreadSynchronize VDPAUSetVDPAUDevice WaitExternalSemaphoresAsync(_ptsz _v2
        _v2_ptsz);
    "cudaGraph": AddKernelNode AddMemcpyNode1D AddMemcpyNodeFromSymbol AddMemcpyNodeToSymbol
        ConditionalHandleCreate(_v2) ExecGetId ExecKernelNodeSetParams ExecMemcpyNodeSetParams1D
        ExecMemcpyNodeSetParamsFromSymbol ExecMemcpyNodeSetParamsToSymbol ExecUpdate GetId Instantiate
        KernelNodeGetParams KernelNodeSetParams MemcpyNodeSetParams1D MemcpyNodeSetParamsFromSymbol
        MemcpyNodeSetParamsToSymbol NodeGetContainingGraph NodeGetLocalId NodeGetParams NodeGetToolsId icsMapResources
        icsResourceGetMappedPointer icsResourceSetMapFlags icsUnmapResources;
    "cudaDevice": DisablePeerAccess EnablePeerAccess FlushGPUDirectRDMAWrites GetCacheConfig GetExecutionCtx GetLimit
        GetSharedMemConfig SetCacheConfig SetLimit SetSharedMemConfig;
    "cudaExecutionCtx": Destroy GetDevResource GetDevice GetId RecordEvent StreamCreate Synchronize WaitEvent;
    "__cuda": GetProcAddress LaunchKernel_ptsz RegisterUnifiedTable;
}
