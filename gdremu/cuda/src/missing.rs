//! The functions of libcuda and libcudart that gdremu does not have. Each says so, once, and fails.
//!
//! The names are those that libcuda.so.1 of driver 580.159.04 and libcudart.so of CUDA 12.9 and 13.5 export.
//! cuGetProcAddress does not find them, and programs that ask it go on without.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::runtime;

/// CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported.
const CUDA: i32 = 801;

fn refuse(symbol: &str, said: &AtomicBool) {
    if !said.swap(true, Ordering::Relaxed) {
        eprintln!("gdremu: {symbol} is not supported");
    }
}

/// Exports functions by the beginning of their names and the rest. Variants of a function have their suffixes behind it.
macro_rules! refused {
    ($result:expr; $($begin:literal: $($end:ident $(($($suffix:ident)*))?)*;)*) => {$($(
        refused!(@ $result; concat!($begin, stringify!($end)));
        $($(refused!(@ $result; concat!($begin, stringify!($end), stringify!($suffix)));)*)?
    )*)*};
    (@ $result:expr; $symbol:expr) => {
        const _: () = {
            extern "C" fn function() -> i32 {
                static SAID: AtomicBool = AtomicBool::new(false);
                refuse($symbol, &SAID);
                $result
            }
            gdremu_preload::entry_point!($symbol, entry = function);
        };
    };
}

// The driver. Names without suffix of functions that have one are of the 32-bit address space of CUDA 3.1.
refused! { CUDA;
    "cu": Array3DCreate(_v2) Array3DGetDescriptor(_v2) ArrayCreate(_v2) ArrayDestroy ArrayGetDescriptor(_v2)
        ArrayGetMemoryRequirements ArrayGetPlane ArrayGetSparseProperties CoredumpGetAttribute
        CoredumpGetAttributeGlobal CoredumpSetAttribute CoredumpSetAttributeGlobal CtxAttach CtxDetach CtxFromGreenCtx
        CtxGetCacheConfig CtxGetDevResource CtxGetExecAffinity CtxGetLimit CtxGetSharedMemConfig CtxRecordEvent
        CtxResetPersistingL2Cache CtxSetCacheConfig CtxSetLimit CtxSetSharedMemConfig CtxWaitEvent DestroyExternalMemory
        DestroyExternalSemaphore DevResourceGenerateDesc DevSmResourceSplitByCount EGLApiInit
        ExternalMemoryGetMappedBuffer ExternalMemoryGetMappedMipmappedArray FuncGetModule FuncGetName FuncGetParamInfo
        FuncIsLoaded FuncLoad FuncSetAttribute FuncSetBlockShape FuncSetCacheConfig FuncSetSharedMemConfig
        FuncSetSharedSize GLCtxCreate(_v2) GLGetDevices(_v2) GLInit GLMapBufferObject(_v2 _v2_ptds)
        GLMapBufferObjectAsync(_v2 _v2_ptsz) GLRegisterBufferObject GLSetBufferObjectMapFlags GLUnmapBufferObject
        GLUnmapBufferObjectAsync GLUnregisterBufferObject GetExportTable GreenCtxCreate GreenCtxDestroy
        GreenCtxGetDevResource GreenCtxGetId GreenCtxRecordEvent GreenCtxStreamCreate GreenCtxWaitEvent
        ImportExternalMemory ImportExternalSemaphore IpcGetEventHandle IpcOpenEventHandle IpcOpenMemHandle
        KernelGetAttribute KernelGetFunction KernelGetLibrary KernelGetName KernelGetParamInfo KernelSetAttribute
        KernelSetCacheConfig Launch LaunchCooperativeKernelMultiDevice LaunchGrid LaunchGridAsync LaunchKernelEx(_ptsz)
        LibraryEnumerateKernels LibraryGetKernel LibraryGetKernelCount LibraryGetManaged LibraryGetModule
        LibraryGetUnifiedFunction LibraryLoadData LibraryLoadFromFile LibraryUnload LinkAddData(_v2) LinkAddFile(_v2)
        LinkComplete LinkCreate(_v2) LinkDestroy LogsCurrent LogsDumpToFile LogsDumpToMemory LogsRegisterCallback
        LogsUnregisterCallback MipmappedArrayCreate MipmappedArrayDestroy MipmappedArrayGetLevel
        MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties ModuleEnumerateFunctions
        ModuleGetFunctionCount ModuleGetGlobal ModuleGetLoadingMode ModuleGetSurfRef ModuleGetTexRef ModuleLoad
        MulticastAddDevice MulticastBindAddr MulticastBindMem MulticastCreate MulticastGetGranularity MulticastUnbind
        OccupancyAvailableDynamicSMemPerBlock OccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        OccupancyMaxActiveClusters OccupancyMaxPotentialBlockSizeWithFlags OccupancyMaxPotentialClusterSize ParamSetSize
        ParamSetTexRef ParamSetf ParamSeti ParamSetv ProfilerInitialize SignalExternalSemaphoresAsync(_ptsz)
        SurfObjectCreate SurfObjectDestroy SurfObjectGetResourceDesc SurfRefGetArray SurfRefSetArray
        TensorMapEncodeIm2col TensorMapEncodeIm2colWide TensorMapEncodeTiled TensorMapReplaceAddress TexObjectCreate
        TexObjectDestroy TexObjectGetResourceDesc TexObjectGetResourceViewDesc TexObjectGetTextureDesc UserObjectCreate
        UserObjectRelease UserObjectRetain VDPAUCtxCreate(_v2) VDPAUGetDevice WaitExternalSemaphoresAsync(_ptsz);
    "cuCheckpointProcess": Checkpoint GetRestoreThreadId GetState Lock Restore Unlock;
    "cuDevice": GetDevResource GetExecAffinitySupport GetGraphMemAttribute GetHostAtomicCapabilities GetLuid
        GetNvSciSyncAttributes GetP2PAtomicCapabilities GetProperties GetTexture1DLinearMaxWidth GraphMemTrim
        RegisterAsyncNotification SetGraphMemAttribute TotalMem UnregisterAsyncNotification;
    "cuEGLStream": ConsumerAcquireFrame ConsumerConnect ConsumerConnectWithFlags ConsumerDisconnect ConsumerReleaseFrame
        ProducerConnect ProducerDisconnect ProducerPresentFrame ProducerReturnFrame;
    "cuGraph": AddBatchMemOpNode AddChildGraphNode AddDependencies(_v2) AddEmptyNode AddEventRecordNode AddEventWaitNode
        AddExternalSemaphoresSignalNode AddExternalSemaphoresWaitNode AddHostNode AddKernelNode(_v2) AddMemAllocNode
        AddMemFreeNode AddMemcpyNode AddMemsetNode AddNode(_v2) BatchMemOpNodeGetParams BatchMemOpNodeSetParams
        ChildGraphNodeGetGraph Clone ConditionalHandleCreate Create DebugDotPrint DestroyNode EventRecordNodeGetEvent
        EventRecordNodeSetEvent EventWaitNodeGetEvent EventWaitNodeSetEvent ExecBatchMemOpNodeSetParams
        ExecChildGraphNodeSetParams ExecDestroy ExecEventRecordNodeSetEvent ExecEventWaitNodeSetEvent
        ExecExternalSemaphoresSignalNodeSetParams ExecExternalSemaphoresWaitNodeSetParams ExecGetFlags
        ExecHostNodeSetParams ExecKernelNodeSetParams(_v2) ExecMemcpyNodeSetParams ExecMemsetNodeSetParams
        ExecNodeSetParams ExecUpdate(_v2) ExternalSemaphoresSignalNodeGetParams ExternalSemaphoresSignalNodeSetParams
        ExternalSemaphoresWaitNodeGetParams ExternalSemaphoresWaitNodeSetParams GetEdges(_v2) GetNodes GetRootNodes
        HostNodeGetParams HostNodeSetParams Instantiate(_v2) InstantiateWithFlags InstantiateWithParams(_ptsz)
        KernelNodeCopyAttributes KernelNodeGetAttribute KernelNodeGetParams(_v2) KernelNodeSetAttribute
        KernelNodeSetParams(_v2) Launch(_ptsz) MemAllocNodeGetParams MemFreeNodeGetParams MemcpyNodeGetParams
        MemcpyNodeSetParams MemsetNodeGetParams MemsetNodeSetParams NodeFindInClone NodeGetDependencies(_v2)
        NodeGetDependentNodes(_v2) NodeGetEnabled NodeGetType NodeSetEnabled NodeSetParams ReleaseUserObject
        RemoveDependencies(_v2) RetainUserObject Upload(_ptsz) icsEGLRegisterImage icsGLRegisterBuffer
        icsGLRegisterImage icsMapResources(_ptsz) icsResourceGetMappedEglFrame icsResourceGetMappedMipmappedArray
        icsResourceGetMappedPointer(_v2) icsResourceSetMapFlags(_v2) icsSubResourceGetMappedArray
        icsUnmapResources(_ptsz) icsUnregisterResource icsVDPAURegisterOutputSurface icsVDPAURegisterVideoSurface;
    "cuMem": Advise(_v2) AllocHost AllocPitch BatchDecompressAsync(_ptsz) DiscardAndPrefetchBatchAsync(_ptsz)
        DiscardBatchAsync(_ptsz) Free GetAddressRange GetAttribute(_v2) GetDefaultMemPool GetInfo GetMemPool
        HostGetDevicePointer MapArrayAsync(_ptsz) PoolGetAccess PrefetchAsync(_ptsz _v2 _v2_ptsz)
        PrefetchBatchAsync(_ptsz) RangeGetAttributes SetMemPool cpy2D(_v2 _v2_ptds) cpy2DAsync(_v2 _v2_ptsz)
        cpy2DUnaligned(_v2 _v2_ptds) cpy3D(_v2 _v2_ptds) cpy3DAsync(_v2 _v2_ptsz) cpy3DBatchAsync(_ptsz _v2 _v2_ptsz)
        cpy3DPeer(_ptds) cpy3DPeerAsync(_ptsz) cpyAtoA(_v2 _v2_ptds) cpyAtoD(_v2 _v2_ptds) cpyAtoH(_v2 _v2_ptds)
        cpyAtoHAsync(_v2 _v2_ptsz) cpyBatchAsync(_ptsz _v2 _v2_ptsz) cpyDtoA(_v2 _v2_ptds) cpyDtoD cpyDtoDAsync cpyDtoH
        cpyDtoHAsync cpyHtoA(_v2 _v2_ptds) cpyHtoAAsync(_v2 _v2_ptsz) cpyHtoD cpyHtoDAsync setD16 setD16Async(_ptsz)
        setD2D16(_v2 _v2_ptds) setD2D16Async(_ptsz) setD2D32(_v2 _v2_ptds) setD2D32Async(_ptsz) setD2D8(_v2 _v2_ptds)
        setD2D8Async(_ptsz) setD32 setD8;
    "cuStream": AttachMemAsync(_ptsz) BatchMemOp(_ptsz _v2 _v2_ptsz) BeginCapture(_ptsz) BeginCaptureToGraph(_ptsz)
        CopyAttributes(_ptsz) GetAttribute(_ptsz) GetCaptureInfo(_ptsz _v2 _v2_ptsz _v3 _v3_ptsz) GetCtx(_ptsz _v2
        _v2_ptsz) GetDevice(_ptsz) GetGreenCtx GetId(_ptsz) SetAttribute(_ptsz) UpdateCaptureDependencies(_ptsz _v2
        _v2_ptsz) WaitValue32(_ptsz _v2 _v2_ptsz) WaitValue64(_ptsz _v2 _v2_ptsz) WriteValue32(_ptsz _v2 _v2_ptsz)
        WriteValue64(_ptsz _v2 _v2_ptsz);
    "cuTexRef": Create Destroy GetAddress(_v2) GetAddressMode GetArray GetBorderColor GetFilterMode GetFlags GetFormat
        GetMaxAnisotropy GetMipmapFilterMode GetMipmapLevelBias GetMipmapLevelClamp GetMipmappedArray SetAddress(_v2)
        SetAddress2D(_v2 _v3) SetAddressMode SetArray SetBorderColor SetFilterMode SetFlags SetFormat SetMaxAnisotropy
        SetMipmapFilterMode SetMipmapLevelBias SetMipmapLevelClamp SetMipmappedArray;
}

// The runtime.
refused! { runtime::remember(CUDA);
    "__cuda": GetProcAddress RegisterUnifiedTable;
    "cuda": ArrayGetInfo ArrayGetMemoryRequirements ArrayGetPlane ArrayGetSparseProperties ChooseDevice
        CreateSurfaceObject CreateTextureObject CtxResetPersistingL2Cache DestroyExternalMemory DestroyExternalSemaphore
        DestroySurfaceObject DestroyTextureObject DevResourceGenerateDesc DevSmResourceSplit DevSmResourceSplitByCount
        EGLStreamConsumerAcquireFrame EGLStreamConsumerConnect EGLStreamConsumerConnectWithFlags
        EGLStreamConsumerDisconnect EGLStreamConsumerReleaseFrame EGLStreamProducerConnect EGLStreamProducerDisconnect
        EGLStreamProducerPresentFrame EGLStreamProducerReturnFrame EventCreateFromEGLSync EventElapsedTime_v2
        ExternalMemoryGetMappedBuffer ExternalMemoryGetMappedMipmappedArray FreeArray FreeMipmappedArray FuncGetName
        FuncGetParamCount FuncGetParamInfo FuncSetAttribute FuncSetCacheConfig FuncSetSharedMemConfig GLGetDevices
        GLMapBufferObject GLMapBufferObjectAsync GLRegisterBufferObject GLSetBufferObjectMapFlags GLSetGLDevice
        GLUnmapBufferObject GLUnmapBufferObjectAsync GLUnregisterBufferObject GetChannelDesc GetExportTable
        GetFuncBySymbol GetMipmappedArrayLevel GetSurfaceObjectResourceDesc GetTextureObjectResourceDesc
        GetTextureObjectResourceViewDesc GetTextureObjectTextureDesc GreenCtxCreate ImportExternalMemory
        ImportExternalSemaphore InitDevice IpcGetEventHandle IpcOpenEventHandle KernelSetAttributeForDevice
        LaunchCooperativeKernelMultiDevice LaunchHostFunc_v2 LaunchHostFunc_v2_ptsz LibraryEnumerateKernels
        LibraryGetGlobal LibraryGetKernel LibraryGetKernelCount LibraryGetManaged LibraryGetUnifiedFunction
        LibraryLoadData LibraryLoadFromFile LibraryUnload LogsCurrent LogsDumpToFile LogsDumpToMemory
        LogsRegisterCallback LogsUnregisterCallback Malloc3D Malloc3DArray MallocArray MallocMipmappedArray
        MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties OccupancyAvailableDynamicSMemPerBlock
        OccupancyMaxActiveClusters OccupancyMaxPotentialClusterSize SetDoubleForDevice SetDoubleForHost SetValidDevices
        SignalExternalSemaphoresAsync(_ptsz _v2 _v2_ptsz) StreamAttachMemAsync(_ptsz) StreamBeginCaptureToGraph(_ptsz)
        StreamBeginRecaptureToGraph(_ptsz) StreamCopyAttributes(_ptsz) StreamGetAttribute(_ptsz)
        StreamGetCaptureInfo(_ptsz _v2 _v2_ptsz _v3 _v3_ptsz) StreamGetDevResource(_ptsz) StreamGetDevice(_ptsz)
        StreamGetId(_ptsz) StreamSetAttribute(_ptsz) StreamUpdateCaptureDependencies(_ptsz _v2 _v2_ptsz) SubgridCreate
        SubgridWorkerGridCreate SubgridWorksetCreate ThreadExit ThreadGetCacheConfig ThreadGetLimit ThreadSetCacheConfig
        ThreadSetLimit ThreadSynchronize UserObjectCreate UserObjectRelease UserObjectRetain VDPAUGetDevice
        VDPAUSetVDPAUDevice WaitExternalSemaphoresAsync(_ptsz _v2 _v2_ptsz);
    "cudaDevice": GetCacheConfig GetDevResource GetExecutionCtx GetGraphMemAttribute GetHostAtomicCapabilities GetLimit
        GetNvSciSyncAttributes GetP2PAtomicCapabilities GetSharedMemConfig GetTexture1DLinearMaxWidth GraphMemTrim
        RegisterAsyncNotification SetCacheConfig SetGraphMemAttribute SetLimit SetSharedMemConfig
        UnregisterAsyncNotification;
    "cudaExecutionCtx": Destroy GetDevResource GetDevice GetId RecordEvent StreamCreate Synchronize WaitEvent;
    "cudaGraph": AddChildGraphNode AddDependencies(_v2) AddEmptyNode AddEventRecordNode AddEventWaitNode
        AddExternalSemaphoresSignalNode AddExternalSemaphoresWaitNode AddHostNode AddKernelNode AddMemAllocNode
        AddMemFreeNode AddMemcpyNode AddMemcpyNode1D AddMemcpyNodeFromSymbol AddMemcpyNodeToSymbol AddMemsetNode
        AddNode(_v2) ChildGraphNodeGetGraph Clone ConditionalHandleCreate(_v2) Create DebugDotPrint Destroy DestroyNode
        EventRecordNodeGetEvent EventRecordNodeSetEvent EventWaitNodeGetEvent EventWaitNodeSetEvent
        ExecChildGraphNodeSetParams ExecDestroy ExecEventRecordNodeSetEvent ExecEventWaitNodeSetEvent
        ExecExternalSemaphoresSignalNodeSetParams ExecExternalSemaphoresWaitNodeSetParams ExecGetFlags ExecGetId
        ExecHostNodeSetParams ExecKernelNodeSetParams ExecMemcpyNodeSetParams ExecMemcpyNodeSetParams1D
        ExecMemcpyNodeSetParamsFromSymbol ExecMemcpyNodeSetParamsToSymbol ExecMemsetNodeSetParams ExecNodeSetParams
        ExecUpdate ExternalSemaphoresSignalNodeGetParams ExternalSemaphoresSignalNodeSetParams
        ExternalSemaphoresWaitNodeGetParams ExternalSemaphoresWaitNodeSetParams GetEdges(_v2) GetId GetNodes
        GetRootNodes HostNodeGetParams HostNodeSetParams Instantiate InstantiateWithFlags InstantiateWithParams(_ptsz)
        KernelNodeCopyAttributes KernelNodeGetAttribute KernelNodeGetParams KernelNodeSetAttribute KernelNodeSetParams
        Launch(_ptsz) MemAllocNodeGetParams MemFreeNodeGetParams MemcpyNodeGetParams MemcpyNodeSetParams
        MemcpyNodeSetParams1D MemcpyNodeSetParamsFromSymbol MemcpyNodeSetParamsToSymbol MemsetNodeGetParams
        MemsetNodeSetParams NodeFindInClone NodeGetContainingGraph NodeGetDependencies(_v2) NodeGetDependentNodes(_v2)
        NodeGetEnabled NodeGetLocalId NodeGetParams NodeGetToolsId NodeGetType NodeSetEnabled NodeSetParams
        ReleaseUserObject RemoveDependencies(_v2) RetainUserObject Upload(_ptsz) icsEGLRegisterImage icsGLRegisterBuffer
        icsGLRegisterImage icsMapResources icsResourceGetMappedEglFrame icsResourceGetMappedMipmappedArray
        icsResourceGetMappedPointer icsResourceSetMapFlags icsSubResourceGetMappedArray icsUnmapResources
        icsUnregisterResource icsVDPAURegisterOutputSurface icsVDPAURegisterVideoSurface;
    "cudaMem": Advise(_v2) DiscardAndPrefetchBatchAsync(_ptsz) DiscardBatchAsync(_ptsz) GetDefaultMemPool
        GetLocationInfo GetMemPool PoolExportPointer PoolExportToShareableHandle PoolGetAccess
        PoolImportFromShareableHandle PoolImportPointer PoolSetAccess PrefetchAsync(_ptsz _v2 _v2_ptsz)
        PrefetchBatchAsync(_ptsz) RangeGetAttribute RangeGetAttributes SetMemPool cpy2D(_ptds) cpy2DArrayToArray(_ptds)
        cpy2DAsync(_ptsz) cpy2DFromArray(_ptds) cpy2DFromArrayAsync(_ptsz) cpy2DToArray(_ptds) cpy2DToArrayAsync(_ptsz)
        cpy3D(_ptds) cpy3DAsync(_ptsz) cpy3DBatchAsync(_ptsz) cpy3DPeer(_ptds) cpy3DPeerAsync(_ptsz)
        cpy3DWithAttributesAsync(_ptsz) cpyArrayToArray(_ptds) cpyBatchAsync(_ptsz) cpyFromArray(_ptds)
        cpyFromArrayAsync(_ptsz) cpyToArray(_ptds) cpyToArrayAsync(_ptsz) cpyWithAttributesAsync(_ptsz) set2D(_ptds)
        set2DAsync(_ptsz) set3D(_ptds) set3DAsync(_ptsz);
}
