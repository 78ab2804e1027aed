//! The functions of NVIDIA's libraries that gdremu does not have. Each says so, once, and fails.
//!
//! The names are those that libcuda.so.1 and libnvidia-ml.so.1 of driver 580.159.04 and libcudart.so of CUDA 12.9 and 13.5
//! export. cuGetProcAddress does not find them, and programs that ask it go on without.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::runtime;

/// CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported.
const CUDA: i32 = 801;

/// NVML_ERROR_NOT_SUPPORTED.
const NVML: i32 = 3;

fn refuse(symbol: &str, said: &AtomicBool) {
    if !said.swap(true, Ordering::Relaxed) {
        eprintln!("gdremu: {symbol} is not supported");
    }
}

/// Exports functions by the beginning of their names and the rest.
macro_rules! refused {
    ($result:expr; $($begin:literal: $($end:ident)*;)*) => {
        $($(refused!(@ $result; concat!($begin, stringify!($end)));)*)*
    };
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
    "cu": Array3DCreate Array3DCreate_v2 Array3DGetDescriptor Array3DGetDescriptor_v2 ArrayCreate ArrayCreate_v2
        ArrayDestroy ArrayGetDescriptor ArrayGetDescriptor_v2 ArrayGetMemoryRequirements ArrayGetPlane
        ArrayGetSparseProperties CheckpointProcessCheckpoint CheckpointProcessGetRestoreThreadId
        CheckpointProcessGetState CheckpointProcessLock CheckpointProcessRestore CheckpointProcessUnlock
        CoredumpGetAttribute CoredumpGetAttributeGlobal CoredumpSetAttribute CoredumpSetAttributeGlobal CtxAttach
        CtxDetach CtxFromGreenCtx CtxGetCacheConfig CtxGetDevResource CtxGetLimit CtxGetSharedMemConfig CtxRecordEvent
        CtxResetPersistingL2Cache CtxSetCacheConfig CtxSetLimit CtxSetSharedMemConfig CtxWaitEvent
        DestroyExternalMemory DestroyExternalSemaphore DevResourceGenerateDesc DevSmResourceSplitByCount EGLApiInit
        EGLStreamConsumerAcquireFrame EGLStreamConsumerConnect EGLStreamConsumerConnectWithFlags
        EGLStreamConsumerDisconnect EGLStreamConsumerReleaseFrame EGLStreamProducerConnect EGLStreamProducerDisconnect
        EGLStreamProducerPresentFrame EGLStreamProducerReturnFrame ExternalMemoryGetMappedBuffer
        ExternalMemoryGetMappedMipmappedArray FuncGetModule FuncGetName FuncGetParamInfo FuncIsLoaded FuncLoad
        FuncSetAttribute FuncSetBlockShape FuncSetCacheConfig FuncSetSharedMemConfig FuncSetSharedSize GLCtxCreate
        GLCtxCreate_v2 GLGetDevices GLGetDevices_v2 GLInit GLMapBufferObject GLMapBufferObjectAsync
        GLMapBufferObjectAsync_v2 GLMapBufferObjectAsync_v2_ptsz GLMapBufferObject_v2 GLMapBufferObject_v2_ptds
        GLRegisterBufferObject GLSetBufferObjectMapFlags GLUnmapBufferObject GLUnmapBufferObjectAsync
        GLUnregisterBufferObject GetExportTable GreenCtxCreate GreenCtxDestroy GreenCtxGetDevResource GreenCtxGetId
        GreenCtxRecordEvent GreenCtxStreamCreate GreenCtxWaitEvent ImportExternalMemory ImportExternalSemaphore
        IpcGetEventHandle IpcOpenEventHandle IpcOpenMemHandle KernelGetAttribute KernelGetFunction KernelGetLibrary
        KernelGetName KernelGetParamInfo KernelSetAttribute KernelSetCacheConfig Launch
        LaunchCooperativeKernelMultiDevice LaunchGrid LaunchGridAsync LaunchKernelEx LaunchKernelEx_ptsz
        LibraryEnumerateKernels LibraryGetKernel LibraryGetKernelCount LibraryGetManaged LibraryGetModule
        LibraryGetUnifiedFunction LibraryLoadData LibraryLoadFromFile LibraryUnload LinkAddData LinkAddData_v2
        LinkAddFile LinkAddFile_v2 LinkComplete LinkCreate LinkCreate_v2 LinkDestroy LogsCurrent LogsDumpToFile
        LogsDumpToMemory LogsRegisterCallback LogsUnregisterCallback MemAdvise MemAdvise_v2 MemAllocHost MemAllocPitch
        MemBatchDecompressAsync MemBatchDecompressAsync_ptsz MemDiscardAndPrefetchBatchAsync
        MemDiscardAndPrefetchBatchAsync_ptsz MemDiscardBatchAsync MemDiscardBatchAsync_ptsz MemFree MemGetAddressRange
        MemGetAttribute MemGetAttribute_v2 MemGetDefaultMemPool MemGetInfo MemGetMemPool MemHostGetDevicePointer
        MemMapArrayAsync MemMapArrayAsync_ptsz MemPrefetchAsync MemPrefetchAsync_ptsz MemPrefetchAsync_v2
        MemPrefetchAsync_v2_ptsz MemPrefetchBatchAsync MemPrefetchBatchAsync_ptsz MemRangeGetAttributes MemSetMemPool
        Memcpy2D Memcpy2DAsync Memcpy2DAsync_v2 Memcpy2DAsync_v2_ptsz Memcpy2DUnaligned Memcpy2DUnaligned_v2
        Memcpy2DUnaligned_v2_ptds Memcpy2D_v2 Memcpy2D_v2_ptds Memcpy3D Memcpy3DAsync Memcpy3DAsync_v2
        Memcpy3DAsync_v2_ptsz Memcpy3DBatchAsync Memcpy3DBatchAsync_ptsz Memcpy3DBatchAsync_v2
        Memcpy3DBatchAsync_v2_ptsz Memcpy3DPeer Memcpy3DPeerAsync Memcpy3DPeerAsync_ptsz Memcpy3DPeer_ptds Memcpy3D_v2
        Memcpy3D_v2_ptds MipmappedArrayCreate MipmappedArrayDestroy MipmappedArrayGetLevel
        MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties ModuleEnumerateFunctions
        ModuleGetFunctionCount ModuleGetGlobal ModuleGetLoadingMode ModuleGetSurfRef ModuleGetTexRef ModuleLoad
        MulticastAddDevice MulticastBindAddr MulticastBindMem MulticastCreate MulticastGetGranularity MulticastUnbind
        OccupancyAvailableDynamicSMemPerBlock OccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        OccupancyMaxActiveClusters OccupancyMaxPotentialBlockSize OccupancyMaxPotentialBlockSizeWithFlags
        OccupancyMaxPotentialClusterSize ParamSetSize ParamSetTexRef ParamSetf ParamSeti ParamSetv ProfilerInitialize
        SignalExternalSemaphoresAsync SignalExternalSemaphoresAsync_ptsz SurfObjectCreate SurfObjectDestroy
        SurfObjectGetResourceDesc SurfRefGetArray SurfRefSetArray TensorMapEncodeIm2col TensorMapEncodeIm2colWide
        TensorMapEncodeTiled TensorMapReplaceAddress TexObjectCreate TexObjectDestroy TexObjectGetResourceDesc
        TexObjectGetResourceViewDesc TexObjectGetTextureDesc UserObjectCreate UserObjectRelease UserObjectRetain
        VDPAUCtxCreate VDPAUCtxCreate_v2 VDPAUGetDevice WaitExternalSemaphoresAsync WaitExternalSemaphoresAsync_ptsz;
    "cuDevice": GetDevResource GetExecAffinitySupport GetGraphMemAttribute GetHostAtomicCapabilities GetLuid
        GetNvSciSyncAttributes GetP2PAtomicCapabilities GetProperties GetTexture1DLinearMaxWidth GraphMemTrim
        RegisterAsyncNotification SetGraphMemAttribute TotalMem UnregisterAsyncNotification;
    "cuGraph": AddBatchMemOpNode AddChildGraphNode AddDependencies AddDependencies_v2 AddEmptyNode AddEventRecordNode
        AddEventWaitNode AddExternalSemaphoresSignalNode AddExternalSemaphoresWaitNode AddHostNode AddKernelNode
        AddKernelNode_v2 AddMemAllocNode AddMemFreeNode AddMemcpyNode AddMemsetNode AddNode AddNode_v2
        BatchMemOpNodeGetParams BatchMemOpNodeSetParams ChildGraphNodeGetGraph Clone ConditionalHandleCreate Create
        DebugDotPrint DestroyNode EventRecordNodeGetEvent EventRecordNodeSetEvent EventWaitNodeGetEvent
        EventWaitNodeSetEvent ExecBatchMemOpNodeSetParams ExecChildGraphNodeSetParams ExecDestroy
        ExecEventRecordNodeSetEvent ExecEventWaitNodeSetEvent ExecExternalSemaphoresSignalNodeSetParams
        ExecExternalSemaphoresWaitNodeSetParams ExecGetFlags ExecHostNodeSetParams ExecKernelNodeSetParams
        ExecKernelNodeSetParams_v2 ExecMemcpyNodeSetParams ExecMemsetNodeSetParams ExecNodeSetParams ExecUpdate
        ExecUpdate_v2 ExternalSemaphoresSignalNodeGetParams ExternalSemaphoresSignalNodeSetParams
        ExternalSemaphoresWaitNodeGetParams ExternalSemaphoresWaitNodeSetParams GetEdges GetEdges_v2 GetNodes
        GetRootNodes HostNodeGetParams HostNodeSetParams Instantiate InstantiateWithFlags InstantiateWithParams
        InstantiateWithParams_ptsz Instantiate_v2 KernelNodeCopyAttributes KernelNodeGetAttribute KernelNodeGetParams
        KernelNodeGetParams_v2 KernelNodeSetAttribute KernelNodeSetParams KernelNodeSetParams_v2 Launch Launch_ptsz
        MemAllocNodeGetParams MemFreeNodeGetParams MemcpyNodeGetParams MemcpyNodeSetParams MemsetNodeGetParams
        MemsetNodeSetParams NodeFindInClone NodeGetDependencies NodeGetDependencies_v2 NodeGetDependentNodes
        NodeGetDependentNodes_v2 NodeGetEnabled NodeGetType NodeSetEnabled NodeSetParams ReleaseUserObject
        RemoveDependencies RemoveDependencies_v2 RetainUserObject Upload Upload_ptsz;
    "cuGraphics": EGLRegisterImage GLRegisterBuffer GLRegisterImage MapResources MapResources_ptsz
        ResourceGetMappedEglFrame ResourceGetMappedMipmappedArray ResourceGetMappedPointer ResourceGetMappedPointer_v2
        ResourceSetMapFlags ResourceSetMapFlags_v2 SubResourceGetMappedArray UnmapResources UnmapResources_ptsz
        UnregisterResource VDPAURegisterOutputSurface VDPAURegisterVideoSurface;
    "cuMemcpy": AtoA AtoA_v2 AtoA_v2_ptds AtoD AtoD_v2 AtoD_v2_ptds AtoH AtoHAsync AtoHAsync_v2 AtoHAsync_v2_ptsz
        AtoH_v2 AtoH_v2_ptds BatchAsync BatchAsync_ptsz BatchAsync_v2 BatchAsync_v2_ptsz DtoA DtoA_v2 DtoA_v2_ptds
        DtoD DtoDAsync DtoH DtoHAsync HtoA HtoAAsync HtoAAsync_v2 HtoAAsync_v2_ptsz HtoA_v2 HtoA_v2_ptds HtoD
        HtoDAsync;
    "cuMemset": D16 D2D16 D2D16Async D2D16Async_ptsz D2D16_v2 D2D16_v2_ptds D2D32 D2D32Async D2D32Async_ptsz D2D32_v2
        D2D32_v2_ptds D2D8 D2D8Async D2D8Async_ptsz D2D8_v2 D2D8_v2_ptds D32 D8;
    "cuStream": AttachMemAsync AttachMemAsync_ptsz BatchMemOp BatchMemOp_ptsz BatchMemOp_v2 BatchMemOp_v2_ptsz
        BeginCapture BeginCaptureToGraph BeginCaptureToGraph_ptsz BeginCapture_ptsz CopyAttributes CopyAttributes_ptsz
        GetAttribute GetAttribute_ptsz GetCaptureInfo GetCaptureInfo_ptsz GetCaptureInfo_v2 GetCaptureInfo_v2_ptsz
        GetCaptureInfo_v3 GetCaptureInfo_v3_ptsz GetDevice GetDevice_ptsz GetGreenCtx GetId GetId_ptsz SetAttribute
        SetAttribute_ptsz UpdateCaptureDependencies UpdateCaptureDependencies_ptsz UpdateCaptureDependencies_v2
        UpdateCaptureDependencies_v2_ptsz WaitValue32 WaitValue32_ptsz WaitValue32_v2 WaitValue32_v2_ptsz WaitValue64
        WaitValue64_ptsz WaitValue64_v2 WaitValue64_v2_ptsz WriteValue32 WriteValue32_ptsz WriteValue32_v2
        WriteValue32_v2_ptsz WriteValue64 WriteValue64_ptsz WriteValue64_v2 WriteValue64_v2_ptsz;
    "cuTexRef": Create Destroy GetAddress GetAddressMode GetAddress_v2 GetArray GetBorderColor GetFilterMode GetFlags
        GetFormat GetMaxAnisotropy GetMipmapFilterMode GetMipmapLevelBias GetMipmapLevelClamp GetMipmappedArray;
    "cuTexRefSet": Address Address2D Address2D_v2 Address2D_v3 AddressMode Address_v2 Array BorderColor FilterMode
        Flags Format MaxAnisotropy MipmapFilterMode MipmapLevelBias MipmapLevelClamp MipmappedArray;
}

// The runtime.
refused! { runtime::remember(CUDA);
    "__cuda": GetProcAddress RegisterUnifiedTable;
    "cuda": ArrayGetInfo ArrayGetMemoryRequirements ArrayGetPlane ArrayGetSparseProperties ChooseDevice
        CreateSurfaceObject CreateTextureObject CtxResetPersistingL2Cache DestroyExternalMemory
        DestroyExternalSemaphore DestroySurfaceObject DestroyTextureObject DevResourceGenerateDesc DevSmResourceSplit
        DevSmResourceSplitByCount DeviceGraphMemTrim DeviceRegisterAsyncNotification DeviceSetCacheConfig
        DeviceSetGraphMemAttribute DeviceSetLimit DeviceSetSharedMemConfig DeviceUnregisterAsyncNotification
        EventCreateFromEGLSync EventElapsedTime_v2 ExternalMemoryGetMappedBuffer ExternalMemoryGetMappedMipmappedArray
        FreeArray FreeMipmappedArray FuncGetName FuncGetParamCount FuncGetParamInfo FuncSetAttribute
        FuncSetCacheConfig FuncSetSharedMemConfig GLGetDevices GLMapBufferObject GLMapBufferObjectAsync
        GLRegisterBufferObject GLSetBufferObjectMapFlags GLSetGLDevice GLUnmapBufferObject GLUnmapBufferObjectAsync
        GLUnregisterBufferObject GetChannelDesc GetExportTable GetFuncBySymbol GetKernel GetMipmappedArrayLevel
        GetSurfaceObjectResourceDesc GetTextureObjectResourceDesc GetTextureObjectResourceViewDesc
        GetTextureObjectTextureDesc GreenCtxCreate ImportExternalMemory ImportExternalSemaphore InitDevice
        IpcGetEventHandle IpcOpenEventHandle KernelSetAttributeForDevice LaunchCooperativeKernelMultiDevice
        LaunchHostFunc_v2 LaunchHostFunc_v2_ptsz LogsCurrent LogsDumpToFile LogsDumpToMemory LogsRegisterCallback
        LogsUnregisterCallback Malloc3D Malloc3DArray MallocArray MallocMipmappedArray Memcpy2D Memcpy2D_ptds Memcpy3D
        Memcpy3D_ptds Memset2D Memset2DAsync Memset2DAsync_ptsz Memset2D_ptds Memset3D Memset3DAsync
        Memset3DAsync_ptsz Memset3D_ptds MipmappedArrayGetMemoryRequirements MipmappedArrayGetSparseProperties
        OccupancyAvailableDynamicSMemPerBlock OccupancyMaxActiveClusters OccupancyMaxPotentialClusterSize
        SetDoubleForDevice SetDoubleForHost SetValidDevices SignalExternalSemaphoresAsync
        SignalExternalSemaphoresAsync_ptsz SignalExternalSemaphoresAsync_v2 SignalExternalSemaphoresAsync_v2_ptsz
        SubgridCreate SubgridWorkerGridCreate SubgridWorksetCreate ThreadExit ThreadGetCacheConfig ThreadGetLimit
        ThreadSetCacheConfig ThreadSetLimit ThreadSynchronize UserObjectCreate UserObjectRelease UserObjectRetain
        VDPAUGetDevice VDPAUSetVDPAUDevice WaitExternalSemaphoresAsync WaitExternalSemaphoresAsync_ptsz
        WaitExternalSemaphoresAsync_v2 WaitExternalSemaphoresAsync_v2_ptsz;
    "cudaDeviceGet": CacheConfig DevResource ExecutionCtx GraphMemAttribute HostAtomicCapabilities Limit
        NvSciSyncAttributes P2PAtomicCapabilities SharedMemConfig Texture1DLinearMaxWidth;
    "cudaEGLStream": ConsumerAcquireFrame ConsumerConnect ConsumerConnectWithFlags ConsumerDisconnect
        ConsumerReleaseFrame ProducerConnect ProducerDisconnect ProducerPresentFrame ProducerReturnFrame;
    "cudaExecutionCtx": Destroy GetDevResource GetDevice GetId RecordEvent StreamCreate Synchronize WaitEvent;
    "cudaGraph": ChildGraphNodeGetGraph Clone ConditionalHandleCreate ConditionalHandleCreate_v2 Create DebugDotPrint
        Destroy DestroyNode EventRecordNodeGetEvent EventRecordNodeSetEvent EventWaitNodeGetEvent
        EventWaitNodeSetEvent ExternalSemaphoresSignalNodeGetParams ExternalSemaphoresSignalNodeSetParams
        ExternalSemaphoresWaitNodeGetParams ExternalSemaphoresWaitNodeSetParams GetEdges GetEdges_v2 GetId GetNodes
        GetRootNodes HostNodeGetParams HostNodeSetParams Instantiate InstantiateWithFlags InstantiateWithParams
        InstantiateWithParams_ptsz KernelNodeCopyAttributes KernelNodeGetAttribute KernelNodeGetParams
        KernelNodeSetAttribute KernelNodeSetParams Launch Launch_ptsz MemAllocNodeGetParams MemFreeNodeGetParams
        MemcpyNodeGetParams MemcpyNodeSetParams MemcpyNodeSetParams1D MemcpyNodeSetParamsFromSymbol
        MemcpyNodeSetParamsToSymbol MemsetNodeGetParams MemsetNodeSetParams NodeFindInClone NodeSetEnabled
        NodeSetParams ReleaseUserObject RemoveDependencies RemoveDependencies_v2 RetainUserObject Upload Upload_ptsz;
    "cudaGraphAdd": ChildGraphNode Dependencies Dependencies_v2 EmptyNode EventRecordNode EventWaitNode
        ExternalSemaphoresSignalNode ExternalSemaphoresWaitNode HostNode KernelNode MemAllocNode MemFreeNode
        MemcpyNode MemcpyNode1D MemcpyNodeFromSymbol MemcpyNodeToSymbol MemsetNode Node Node_v2;
    "cudaGraphExec": ChildGraphNodeSetParams Destroy EventRecordNodeSetEvent EventWaitNodeSetEvent
        ExternalSemaphoresSignalNodeSetParams ExternalSemaphoresWaitNodeSetParams GetFlags GetId HostNodeSetParams
        KernelNodeSetParams MemcpyNodeSetParams MemcpyNodeSetParams1D MemcpyNodeSetParamsFromSymbol
        MemcpyNodeSetParamsToSymbol MemsetNodeSetParams NodeSetParams Update;
    "cudaGraphNodeGet": ContainingGraph Dependencies Dependencies_v2 DependentNodes DependentNodes_v2 Enabled LocalId
        Params ToolsId Type;
    "cudaGraphics": EGLRegisterImage GLRegisterBuffer GLRegisterImage MapResources ResourceGetMappedEglFrame
        ResourceGetMappedMipmappedArray ResourceGetMappedPointer ResourceSetMapFlags SubResourceGetMappedArray
        UnmapResources UnregisterResource VDPAURegisterOutputSurface VDPAURegisterVideoSurface;
    "cudaLibrary": EnumerateKernels GetGlobal GetKernel GetKernelCount GetManaged GetUnifiedFunction LoadData
        LoadFromFile Unload;
    "cudaMem": Advise Advise_v2 DiscardAndPrefetchBatchAsync DiscardAndPrefetchBatchAsync_ptsz DiscardBatchAsync
        DiscardBatchAsync_ptsz GetDefaultMemPool GetLocationInfo GetMemPool PoolExportPointer
        PoolExportToShareableHandle PoolGetAccess PoolImportFromShareableHandle PoolImportPointer PoolSetAccess
        PrefetchAsync PrefetchAsync_ptsz PrefetchAsync_v2 PrefetchAsync_v2_ptsz PrefetchBatchAsync
        PrefetchBatchAsync_ptsz RangeGetAttribute RangeGetAttributes SetMemPool;
    "cudaMemcpy": ArrayToArray ArrayToArray_ptds BatchAsync BatchAsync_ptsz FromArray FromArrayAsync
        FromArrayAsync_ptsz FromArray_ptds ToArray ToArrayAsync ToArrayAsync_ptsz ToArray_ptds WithAttributesAsync
        WithAttributesAsync_ptsz;
    "cudaMemcpy2D": ArrayToArray ArrayToArray_ptds Async Async_ptsz FromArray FromArrayAsync FromArrayAsync_ptsz
        FromArray_ptds ToArray ToArrayAsync ToArrayAsync_ptsz ToArray_ptds;
    "cudaMemcpy3D": Async Async_ptsz BatchAsync BatchAsync_ptsz Peer PeerAsync PeerAsync_ptsz Peer_ptds
        WithAttributesAsync WithAttributesAsync_ptsz;
    "cudaStream": AttachMemAsync AttachMemAsync_ptsz BeginCaptureToGraph BeginCaptureToGraph_ptsz
        BeginRecaptureToGraph BeginRecaptureToGraph_ptsz CopyAttributes CopyAttributes_ptsz GetAttribute
        GetAttribute_ptsz GetCaptureInfo GetCaptureInfo_ptsz GetCaptureInfo_v2 GetCaptureInfo_v2_ptsz
        GetCaptureInfo_v3 GetCaptureInfo_v3_ptsz GetDevResource GetDevResource_ptsz GetDevice GetDevice_ptsz GetId
        GetId_ptsz SetAttribute SetAttribute_ptsz UpdateCaptureDependencies UpdateCaptureDependencies_ptsz
        UpdateCaptureDependencies_v2 UpdateCaptureDependencies_v2_ptsz;
}

// NVML.
refused! { NVML;
    "nvml": ComputeInstanceDestroy ComputeInstanceGetInfo ComputeInstanceGetInfo_v2 EventSetCreate EventSetFree
        EventSetWait EventSetWait_v2 GetBlacklistDeviceCount GetBlacklistDeviceInfoByIndex GetExcludedDeviceCount
        GetExcludedDeviceInfoByIndex GetVgpuCompatibility GetVgpuDriverCapabilities GetVgpuVersion GpmMetricsGet
        GpmMigSampleGet GpmQueryDeviceSupport GpmQueryIfStreamingEnabled GpmSampleAlloc GpmSampleFree GpmSampleGet
        GpmSetStreamingEnabled GpuInstanceCreateComputeInstance GpuInstanceCreateComputeInstanceWithPlacement
        GpuInstanceDestroy GpuInstanceSetVgpuHeterogeneousMode GpuInstanceSetVgpuSchedulerState InternalGetExportTable
        SetVgpuVersion UnitSetLedState VgpuInstanceClearAccountingPids VgpuInstanceSetEncoderCapacity;
    "nvmlDevice": ClearAccountingPids ClearCpuAffinity ClearEccErrorCounts ClearFieldValues CreateGpuInstance
        CreateGpuInstanceWithPlacement DiscoverGpus FreezeNvLinkUtilizationCounter IsMigDeviceHandle ModifyDrainState
        OnSameBoard PowerSmoothingActivatePresetProfile PowerSmoothingSetState PowerSmoothingUpdatePresetProfileParam
        QueryDrainState ReadPRMCounters_v1 ReadWritePRM_v1 RegisterEvents RemoveGpu RemoveGpu_v2
        ResetApplicationsClocks ResetGpuLockedClocks ResetMemoryLockedClocks ResetNvLinkErrorCounters
        ResetNvLinkUtilizationCounter ValidateInforom WorkloadPowerProfileClearRequestedProfiles
        WorkloadPowerProfileGetCurrentProfiles WorkloadPowerProfileGetProfilesInfo
        WorkloadPowerProfileSetRequestedProfiles;
    "nvmlDeviceGet": APIRestriction AccountingBufferSize AccountingMode AccountingPids AccountingStats ActiveVgpus
        AdaptiveClockInfoStatus AddressingMode ApplicationsClock Architecture Attributes Attributes_v2
        AutoBoostedClocksEnabled BoardId BoardPartNumber Brand BridgeChipInfo BusType C2cModeInfoV Capabilities
        ClkMonStatus Clock ClockInfo ClockOffsets ComputeInstanceId ComputeMode ComputeRunningProcesses
        ComputeRunningProcesses_v2 ComputeRunningProcesses_v3 ConfComputeGpuAttestationReport
        ConfComputeGpuCertificate ConfComputeMemSizeInfo ConfComputeProtectedMemoryUsage CoolerInfo CpuAffinity
        CpuAffinityWithinScope CreatableVgpus CurrentClockFreqs CurrentClocksEventReasons CurrentClocksThrottleReasons
        DecoderUtilization DefaultApplicationsClock DefaultEccMode DetailedEccErrors DeviceHandleFromMigDeviceHandle
        DisplayActive DisplayMode DramEncryptionMode DriverModel DriverModel_v2 DynamicPstatesInfo EccMode
        EncoderCapacity EncoderSessions EncoderStats EncoderUtilization EnforcedPowerLimit FBCSessions FBCStats
        FanControlPolicy_v2 FanSpeed FanSpeedRPM FanSpeed_v2 GpcClkMinMaxVfOffset GpcClkVfOffset GpuInstances
        GpuMaxPcieLinkGeneration GpuOperationMode GraphicsRunningProcesses GraphicsRunningProcesses_v2
        GraphicsRunningProcesses_v3 GridLicensableFeatures GridLicensableFeatures_v2 GridLicensableFeatures_v3
        GridLicensableFeatures_v4 GspFirmwareMode GspFirmwareVersion HandleBySerial HandleByUUIDV HostVgpuMode
        Hostname_v1 InforomConfigurationChecksum InforomImageVersion InforomVersion IrqNum JpgUtilization
        LastBBXFlushTime MPSComputeRunningProcesses MPSComputeRunningProcesses_v2 MPSComputeRunningProcesses_v3
        MarginTemperature MaxClockInfo MaxCustomerBoostClock MemClkMinMaxVfOffset MemClkVfOffset MemoryAffinity
        MemoryBusWidth MemoryErrorCounter MemoryInfo_v2 MigDeviceHandleByIndex MinMaxClockOfPState MinMaxFanSpeed
        ModuleId MultiGpuBoard NumFans NumGpuCores NumaNodeId NvLinkErrorCounter NvLinkInfo NvLinkRemoteDeviceType
        NvLinkUtilizationControl NvLinkUtilizationCounter NvLinkVersion NvlinkBwMode NvlinkSupportedBwModes
        OfaUtilization PciInfoExt PcieLinkMaxSpeed PcieReplayCounter PcieSpeed PcieThroughput Pdi PerformanceModes
        PerformanceState PersistenceMode PgpuMetadataString PlatformInfo PowerManagementDefaultLimit
        PowerManagementLimit PowerManagementLimitConstraints PowerManagementMode PowerMizerMode_v1 PowerSource
        PowerState PowerUsage ProcessUtilization ProcessesUtilizationInfo RemappedRows RemappedRows_v2 RepairStatus
        RetiredPages RetiredPagesPendingStatus RetiredPages_v2 RowRemapperHistogram RunningProcessDetailList Samples
        Serial SramEccErrorStatus SramUniqueUncorrectedEccErrorCounts SupportedClocksEventReasons
        SupportedClocksThrottleReasons SupportedEventTypes SupportedGraphicsClocks SupportedMemoryClocks
        SupportedPerformanceStates SupportedVgpus TargetFanSpeed Temperature TemperatureThreshold TemperatureV
        ThermalSettings TopologyCommonAncestor TopologyNearestGpus TotalEccErrors TotalEnergyConsumption
        UnrepairableMemoryFlag_v1 UtilizationRates VbiosVersion VgpuCapabilities VgpuHeterogeneousMode
        VgpuInstancesUtilizationInfo VgpuMetadata VgpuProcessUtilization VgpuProcessesUtilizationInfo
        VgpuSchedulerCapabilities VgpuSchedulerLog VgpuSchedulerState VgpuTypeCreatablePlacements
        VgpuTypeSupportedPlacements VgpuUtilization ViolationStatus VirtualizationMode;
    "nvmlDeviceGetGpuInstance": ById Id PossiblePlacements PossiblePlacements_v2 ProfileInfo ProfileInfoByIdV
        ProfileInfoV RemainingCapacity;
    "nvmlDeviceSet": APIRestriction AccountingMode ApplicationsClocks AutoBoostedClocksEnabled ClockOffsets
        ComputeMode ConfComputeUnprotectedMemSize CpuAffinity DefaultAutoBoostedClocksEnabled DefaultFanSpeed_v2
        DramEncryptionMode DriverModel EccMode FanControlPolicy FanSpeed_v2 GpcClkVfOffset GpuLockedClocks
        GpuOperationMode Hostname_v1 MemClkVfOffset MemoryLockedClocks MigMode NvLinkDeviceLowPowerThreshold
        NvLinkUtilizationControl NvlinkBwMode PersistenceMode PowerManagementLimit PowerManagementLimit_v2
        PowerMizerMode_v1 TemperatureThreshold VgpuCapabilities VgpuHeterogeneousMode VgpuSchedulerState
        VirtualizationMode;
    "nvmlGpuInstanceGet": ActiveVgpus ComputeInstanceById ComputeInstancePossiblePlacements ComputeInstanceProfileInfo
        ComputeInstanceProfileInfoV ComputeInstanceRemainingCapacity ComputeInstances CreatableVgpus Info
        VgpuHeterogeneousMode VgpuSchedulerLog VgpuSchedulerState VgpuTypeCreatablePlacements;
    "nvmlSystem": EventSetCreate EventSetFree EventSetWait GetConfComputeCapabilities GetConfComputeGpusReadyState
        GetConfComputeKeyRotationThresholdInfo GetConfComputeSettings GetConfComputeState GetDriverBranch
        GetHicVersion GetNvlinkBwMode GetProcessName GetTopologyGpuSet RegisterEvents SetConfComputeGpusReadyState
        SetConfComputeKeyRotationThresholdInfo SetNvlinkBwMode;
    "nvmlUnitGet": Count Devices FanSpeedInfo HandleByIndex LedState PsuInfo Temperature UnitInfo;
    "nvmlVgpuInstanceGet": AccountingMode AccountingPids AccountingStats EccMode EncoderCapacity EncoderSessions
        EncoderStats FBCSessions FBCStats FbUsage FrameRateLimit GpuInstanceId GpuPciId LicenseInfo LicenseInfo_v2
        LicenseStatus MdevUUID Metadata PlacementId RuntimeStateSize Type UUID VmDriverVersion VmID;
    "nvmlVgpuTypeGet": BAR1Info Capabilities Class DeviceID FbReservation FrameRateLimit FramebufferSize
        GpuInstanceProfileId GspHeapSize License MaxInstances MaxInstancesPerGpuInstance MaxInstancesPerVm Name
        NumDisplayHeads Resolution;
}
