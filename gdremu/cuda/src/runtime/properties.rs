//! cudaDeviceProp: what it shows of a GPU, and where.
#![forbid(unsafe_code)]

use std::ffi::c_char;

use super::entry::check;
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetUuid_v2,
    cuDeviceTotalMem_v2, cuInit,
};
use crate::error::{Error, Result, ensure};
use gdremu_core::cuda::types::Uuid;

/// A member of cudaDeviceProp: where it is in CUDA 12 and 13, and which device attribute it shows.
struct Member {
    at: [Option<usize>; 2],
    attribute: i32,
    /// 4 or 8 bytes.
    size: usize,
}

const fn member(at_12: usize, at_13: usize, attribute: i32, size: usize) -> Member {
    Member { at: [Some(at_12), Some(at_13)], attribute, size }
}

/// A member that CUDA 13 has not any more.
const fn old_member(at: usize, attribute: i32, size: usize) -> Member {
    Member { at: [Some(at), None], attribute, size }
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

fn properties(to: Out<u8>, gpu: i32, layout: usize) -> Result {
    let mut count = 0;
    check(cuDeviceGetCount(Out::to(&mut count)))?;
    ensure((0..count).contains(&gpu), Error::INVALID_DEVICE)?;
    let mut bytes = vec![0; PROPERTIES[layout]];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let mut name = [0; 256];
    check(cuDeviceGetName(Out::first_of(&mut name), 256, gpu))?;
    put(0, &name.map(|c: c_char| c as u8));
    let mut uuid = Uuid([0; 16]);
    check(cuDeviceGetUuid_v2(Out::to(&mut uuid), gpu))?;
    put(256, &uuid.0);
    let mut memory = 0;
    check(cuDeviceTotalMem_v2(Out::to(&mut memory), gpu))?;
    put(288, &memory.to_ne_bytes());
    for member in MEMBERS {
        let mut value = 0;
        let attribute = member.attribute;
        check(cuDeviceGetAttribute(Out::to(&mut value), attribute, gpu))?;
        if let Some(at) = member.at[layout] {
            put(at, &i64::from(value).to_ne_bytes()[..member.size]);
        }
    }
    to.set_all(bytes.into_iter())
}

/// Of CUDA 12, by the name that its header makes of cudaGetDeviceProperties.
pub(crate) fn cudaGetDeviceProperties_v2(to: Out<u8>, gpu: i32) -> Result {
    properties(to, gpu, 0)
}

/// Of CUDA 13.
pub(crate) fn cudaGetDeviceProperties(to: Out<u8>, gpu: i32) -> Result {
    properties(to, gpu, 1)
}

pub(crate) fn cudaGetDeviceCount(count: Out<i32>) -> Result {
    count.set(0)?;
    check(cuInit(0))?;
    check(cuDeviceGetCount(count))
}

/// cudaChannelFormatDesc: the bits of each component of a texture, and their kind.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ChannelFormat {
    bits: [i32; 4],
    kind: u32,
}

pub(crate) extern "C" fn cudaCreateChannelDesc(
    x: i32,
    y: i32,
    z: i32,
    w: i32,
    kind: u32,
) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}
