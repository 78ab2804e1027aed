//! The names of devices, their PCI addresses, and their numbered attributes.
#![forbid(unsafe_code)]

use gdremu_core::config::YesNo;
use gdremu_core::gpu::pci;

use crate::error::{Error, Result, valid};
use crate::gpus;

pub(super) const NAME: &str = "gdremu GPU";

pub(super) fn at_pci_address(text: &str) -> Result<i32> {
    let address = valid(pci_fields(text))?;
    let ordinal = gpus::visible().iter().position(|gpu| pci_fields(&pci::address(*gpu)) == Some(address));
    ordinal.map(|ordinal| ordinal as i32).ok_or(Error::INVALID_DEVICE)
}

/// Reads `[domain:]bus:device[.function]`. All numbers are hexadecimal.
fn pci_fields(text: &str) -> Option<[u32; 4]> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut fields = Vec::new();
    for digits in address.split(':').chain([function]) {
        fields.push(u32::from_str_radix(digits, 16).ok()?);
    }
    match fields[..] {
        [domain, bus, device, function] => Some([domain, bus, device, function]),
        [bus, device, function] => Some([0, bus, device, function]),
        _ => None,
    }
}

const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;

/// The first CUDA version with the attribute DMA_BUF_MMAP_SUPPORTED.
const DMABUF_MMAP_ATTRIBUTE: u32 = 13050;

/// The values of attributes 1 to 147, as driver 580 reports them for an H200, but 0 for features that the emulator
/// lacks. Each line ends with the numbers of its attributes.
#[rustfmt::skip]
const VALUES: [i32; 147] = [
    1024, 1024, 1024, 64, i32::MAX, 65535, 65535, // 1-7: threads per block, block dimensions, grid dimensions
    48 << 10, 64 << 10,             // 8-9: shared memory per block, constant memory
    32, i32::MAX, 65536, 1_980_000, // 10-13: warp size, pitch, registers per block, clock rate in kHz
    512, 1, 132,                    // 14-16: texture alignment, GPU_OVERLAP, MULTIPROCESSOR_COUNT
    0, 0, 1, 0,                     // 17-20: execution timeout, integrated, CAN_MAP_HOST_MEMORY, compute mode
    131_072, 131_072, 65536, 16384, 16384, 16384, 32768, 32768, 2048, // 21-29: sizes of textures
    512, 1, 1, 0, 0, 0,             // 30-35: surface alignment, concurrent kernels, ECC, PCI bus and device, TCC
    3_201_000, 6016, 60 << 20,      // 36-38: memory clock in kHz, bus width in bits, L2 cache
    2048, 3, 1,                     // 39-41: threads per multiprocessor, copy engines, UNIFIED_ADDRESSING
    32768, 2048, 1, 32768, 32768, 8192, 8192, 32768, // 42-49: sizes of textures
    0, 32,                          // 50-51: PCI domain, texture pitch alignment
    32768, 32768, 2046, 32768, 131_072, 65536, 16384, 16384, 16384, 32768, 2048, // 52-62: textures, surfaces
    32768, 32768, 2048, 32768, 32768, 2046, 1 << 28, 131_072, 65000, 2_097_120, 32768, 32768, // 63-74: surface, texture
    9, 0, 32768, 1, 1, 1,           // 75-80: compute capability, texture, stream priorities, L1 caches
    228 << 10, 65536, 1, 0, 0,      // 81-85: shared memory and registers per multiprocessor, MANAGED_MEMORY, boards
    0, 2, 0, 1, 1, 1,               // 86-91: atomics, FP64 ratio, pageable and managed memory, preemption, pointers
    0, 0, 0, 1, 0, 227 << 10,       // 92-97: stream memory operations, COOPERATIVE_LAUNCH, shared memory
    0, 1, 0, 0, 1, 0, 0, 0,         // 98-105: remote writes, HOST_REGISTER, coherence, VMM, its shareable handles
    32, 0, 0, 0, 1, 1024,           // 106-111: blocks per multiprocessor, compression, L2 windows, VMM RDMA, reserved
    0, 0, 0, 1, 1, 1, 100,          // 112-118: sparse arrays, read-only, timelines, pools, RDMA, its flush and order
    0, 1, 0, 0, 0, 1, 0, 1,         // 119-126: pool handles, CLUSTER_LAUNCH, memory operations, dma-buf, IPC, domains
    0, 0, 0, 0, -1, 0, 0, 0,        // 127-134: tensor maps, fabric handles, pointers, NUMA and its id, multicast, MPS
    0, 0, 0, 0, 0, 0,               // 135-140: Direct3D, decompression, Vulkan, PCI ids
    0, 0, 0, 0, 0, 0, 0,            // 141-147: VMM, pools and dma-bufs in host memory, atomics
];

pub(super) fn value(gpu: usize, attribute: i32) -> Result<i32> {
    let config = gpus::config();
    let coherent = i32::from(config.coherent);
    Ok(match attribute {
        33 => (pci::bus(gpu) & 0xff) as i32, // PCI_BUS_ID
        // A coherent GPU has compute capability 10.0, the lowest on which NVIDIA's tests pin with FORCE_PCIE.
        COMPUTE_CAPABILITY_MAJOR if config.coherent => 10,
        85 => gpu as i32, // MULTI_GPU_BOARD_GROUP_ID
        // HOST_NATIVE_ATOMIC_SUPPORTED, PAGEABLE_MEMORY_ACCESS, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        86 | 88 | 100 => coherent,
        // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED and GPU_DIRECT_RDMA_SUPPORTED
        110 | 116 => i32::from(*config.rdma.of(gpu) == YesNo::Yes),
        115 => i32::from(config.mempools),             // MEMORY_POOLS_SUPPORTED
        124 => i32::from(config.exports_dmabufs(gpu)), // DMA_BUF_SUPPORTED
        139 => (u32::from(config.pci_device) << 16 | pci::VENDOR) as i32, // GPU_PCI_DEVICE_ID
        140 => (pci::SUBSYSTEM << 16 | pci::VENDOR) as i32, // GPU_PCI_SUBSYSTEM_ID
        // DMA_BUF_MMAP_SUPPORTED
        152 if config.cuda_version >= DMABUF_MMAP_ATTRIBUTE => i32::from(config.maps_dmabufs(gpu)),
        _ => *valid(VALUES.get((attribute as usize).wrapping_sub(1)))?,
    })
}

/// Returns the compute capability times 10, such as 90 for 9.0.
pub(super) fn capability(gpu: usize) -> Result<u32> {
    Ok((value(gpu, COMPUTE_CAPABILITY_MAJOR)? * 10 + value(gpu, COMPUTE_CAPABILITY_MINOR)?) as u32)
}
