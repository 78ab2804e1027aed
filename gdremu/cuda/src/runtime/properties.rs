//! Fills the runtime's structures cudaDeviceProp and cudaPointerAttributes with attributes that the driver reports.
#![forbid(unsafe_code)]

use std::ffi::c_char;

use super::entry::{check, result_of};
use crate::args::Out;
use crate::driver::entry_points::exported::{
    cuDeviceGetAttribute, cuDeviceGetCount, cuDeviceGetName, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
    cuPointerGetAttribute,
};
use crate::error::{Error, Result, ensure};
use gdremu_core::cuda::types::Uuid;

/// Groups of consecutive members of cudaDeviceProp. A group has the offset of its first member in CUDA 12 and in CUDA
/// 13, and the number of the device attribute from which each member gets its value.
#[rustfmt::skip]
const MEMBERS: &[([usize; 2], &[i32])] = &[
    // Members from sharedMemPerBlock to computeMode.
    ([296, 296], &[8, 12, 10, 11, 1, 2, 3, 4, 5, 6, 7, 13, 9, 75, 76, 14, 51, 15, 16, 17, 18, 19, 20]),
    // Members from surfaceAlignment to l2CacheSize.
    ([568, 552], &[30, 31, 32, 33, 34, 50, 35, 40, 41, 36, 37, 38]),
    // Members from maxThreadsPerMultiProcessor to hostRegisterSupported.
    ([624, 604], &[39, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 95, 97, 100, 101, 106, 111, 99]),
    // Members from timelineSemaphoreInteropSupported to memoryPoolSupportedHandleTypes.
    ([740, 716], &[114, 115, 116, 117, 118, 119]),
    // The members ipcEventSupported and clusterLaunch.
    ([768, 744], &[125, 120]),
];

/// Attributes whose members in cudaDeviceProp have 8 bytes.
const WIDE: [i32; 9] = [8, 9, 11, 14, 30, 51, 81, 97, 111];
/// Attributes whose members CUDA 13 has removed: clockRate, deviceOverlap, kernelExecTimeoutEnabled, computeMode,
/// memoryClockRate, singleToDoublePrecisionPerfRatio.
const ONLY_IN_12: [i32; 6] = [13, 15, 17, 20, 36, 87];

/// The layout of cudaDeviceProp in CUDA 12. CUDA 12's header renames cudaGetDeviceProperties to ..._v2.
pub(super) const CUDA_12: usize = 0;
/// The layout of cudaDeviceProp in CUDA 13.
pub(super) const CUDA_13: usize = 1;

const PROPERTIES: [usize; 2] = [1032, 1008];

pub(super) fn of(to: Out<u8>, gpu: i32, layout: usize) -> Result {
    let count = result_of(|count| cuDeviceGetCount(count))?;
    ensure((0..count).contains(&gpu), Error::INVALID_DEVICE)?;
    let mut name = [0; 256];
    check(cuDeviceGetName(Out::to(&mut name).of(), 256, gpu))?;
    let mut uuid = Uuid([0; 16]);
    check(cuDeviceGetUuid_v2(Out::to(&mut uuid), gpu))?;
    let memory = result_of(|memory| cuDeviceTotalMem_v2(memory, gpu))?;
    let mut bytes = name.map(|c: c_char| c as u8).to_vec();
    bytes.extend(uuid.0);
    bytes.resize(288, 0);
    bytes.extend(memory.to_ne_bytes());
    bytes.resize(PROPERTIES[layout], 0);
    for (starts, attributes) in MEMBERS {
        let mut at = starts[layout];
        for attribute in *attributes {
            if layout != CUDA_12 && ONLY_IN_12.contains(attribute) {
                continue;
            }
            let value = result_of(|value| cuDeviceGetAttribute(value, *attribute, gpu))?;
            let size = if WIDE.contains(attribute) { 8 } else { 4 };
            at = at.next_multiple_of(size);
            bytes[at..at + size].copy_from_slice(&i64::from(value).to_ne_bytes()[..size]);
            at += size;
        }
    }
    to.set_all(bytes.into_iter())
}

/// The structure cudaPointerAttributes, without the reserved members at its end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: u32,
    gpu: i32,
    device: u64,
    host: u64,
}

impl PointerAttributes {
    /// Returns the attributes of memory. Memory that CUDA does not know counts as unregistered host memory.
    pub(super) fn of(address: u64) -> PointerAttributes {
        /// Values of cudaMemoryType.
        const HOST: u32 = 1;
        const DEVICE: u32 = 2;
        const MANAGED: u32 = 3;

        let attribute = |number| result_of(|value: Out<u64>| cuPointerGetAttribute(value.of(), number, address));
        let Ok(memory_type) = attribute(2) else {
            return PointerAttributes { kind: 0, gpu: -2, device: 0, host: address };
        };
        let kind = match memory_type as u32 {
            HOST => HOST,
            _ if attribute(8) == Ok(1) => MANAGED,
            _ => DEVICE,
        };
        let gpu = attribute(9).unwrap_or_default() as i32;
        PointerAttributes { kind, gpu, device: address, host: if kind == DEVICE { 0 } else { address } }
    }
}
