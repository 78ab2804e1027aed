//! Device attributes by number, those of a GPU of compute capability 9.0 for PCIe.

use gdremu_core::config::YesNo;
use gdremu_core::gpu::pci;

use crate::error::{Error, Result};
use crate::gpus;

pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
pub(crate) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
pub(crate) const COMPUTE_CAPABILITY_MINOR: i32 = 76;

/// The first CUDA version with the attribute DMA_BUF_MMAP_SUPPORTED.
const DMABUF_MMAP_ATTRIBUTE: u32 = 13050;

/// Attributes that are the same on every emulated GPU: (number, value).
const FIXED: &[(i32, i32)] = &[
    (1, 1024),       // MAX_THREADS_PER_BLOCK
    (2, 1024),       // MAX_BLOCK_DIM_X
    (3, 1024),       // MAX_BLOCK_DIM_Y
    (4, 64),         // MAX_BLOCK_DIM_Z
    (5, i32::MAX),   // MAX_GRID_DIM_X
    (6, 65535),      // MAX_GRID_DIM_Y
    (7, 65535),      // MAX_GRID_DIM_Z
    (8, 48 << 10),   // MAX_SHARED_MEMORY_PER_BLOCK
    (9, 64 << 10),   // TOTAL_CONSTANT_MEMORY
    (10, 32),        // WARP_SIZE
    (11, i32::MAX),  // MAX_PITCH
    (12, 65536),     // MAX_REGISTERS_PER_BLOCK
    (13, 1_980_000), // CLOCK_RATE, kHz
    (14, 512),       // TEXTURE_ALIGNMENT
    (15, 1),         // GPU_OVERLAP
    (MULTIPROCESSOR_COUNT, 132),
    (17, 0),         // KERNEL_EXEC_TIMEOUT
    (18, 0),         // INTEGRATED
    (19, 1),         // CAN_MAP_HOST_MEMORY
    (20, 0),         // COMPUTE_MODE: default
    (30, 512),       // SURFACE_ALIGNMENT
    (31, 1),         // CONCURRENT_KERNELS
    (32, 1),         // ECC_ENABLED
    (34, 0),         // PCI_DEVICE_ID
    (35, 0),         // TCC_DRIVER
    (36, 3_201_000), // MEMORY_CLOCK_RATE, kHz
    (37, 6144),      // GLOBAL_MEMORY_BUS_WIDTH, bits
    (38, 60 << 20),  // L2_CACHE_SIZE
    (39, 2048),      // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),         // ASYNC_ENGINE_COUNT
    (41, 1),         // UNIFIED_ADDRESSING
    (50, 0),         // PCI_DOMAIN_ID
    (51, 32),        // TEXTURE_PITCH_ALIGNMENT
    (COMPUTE_CAPABILITY_MAJOR, 9),
    (COMPUTE_CAPABILITY_MINOR, 0),
    (78, 1),         // STREAM_PRIORITIES_SUPPORTED
    (79, 1),         // GLOBAL_L1_CACHE_SUPPORTED
    (80, 1),         // LOCAL_L1_CACHE_SUPPORTED
    (81, 228 << 10), // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, 65536),     // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),         // MANAGED_MEMORY
    (84, 0),         // MULTI_GPU_BOARD
    (87, 2),         // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    (89, 1),         // CONCURRENT_MANAGED_ACCESS
    (90, 1),         // COMPUTE_PREEMPTION_SUPPORTED
    (91, 1),         // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (92, 0),         // CAN_USE_STREAM_MEM_OPS_V1
    (93, 0),         // CAN_USE_64_BIT_STREAM_MEM_OPS_V1
    (94, 0),         // CAN_USE_STREAM_WAIT_VALUE_NOR_V1
    (95, 1),         // COOPERATIVE_LAUNCH
    (97, 227 << 10), // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    (98, 0),         // CAN_FLUSH_REMOTE_WRITES
    (99, 1),         // HOST_REGISTER_SUPPORTED
    (101, 0),        // DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
    (102, 1),        // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    (103, 1),        // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    (104, 0),        // HANDLE_TYPE_WIN32_HANDLE_SUPPORTED
    (105, 0),        // HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED
    (106, 32),       // MAX_BLOCKS_PER_MULTIPROCESSOR
    (107, 0),        // GENERIC_COMPRESSION_SUPPORTED
    (111, 1024),     // RESERVED_SHARED_MEMORY_PER_BLOCK
    (113, 0),        // READ_ONLY_HOST_REGISTER_SUPPORTED
    (114, 0),        // TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
    (117, 1),        // GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: from the host
    (118, 100),      // GPU_DIRECT_RDMA_WRITES_ORDERING: for the owner
    (119, 0),        // MEMPOOL_SUPPORTED_HANDLE_TYPES
    (120, 1),        // CLUSTER_LAUNCH
    (122, 0),        // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 0),        // CAN_USE_STREAM_WAIT_VALUE_NOR
    (125, 0),        // IPC_EVENT_SUPPORTED
    (128, 0),        // HANDLE_TYPE_FABRIC_SUPPORTED
    (130, 0),        // NUMA_CONFIG
    (131, -1),       // NUMA_ID
    (132, 0),        // MULTICAST_SUPPORTED
    (133, 0),        // MPS_ENABLED
    (134, 0),        // HOST_NUMA_ID
];

/// The value of an attribute.
///
/// # Errors
/// INVALID_VALUE for a number that the emulated driver does not know.
pub(crate) fn value(gpu: usize, attribute: i32) -> Result<i32> {
    let config = gpus::config();
    let coherent = i32::from(config.coherent);
    Ok(match attribute {
        33 => (pci::bus(gpu) & 0xff) as i32, // PCI_BUS_ID
        85 => gpu as i32,                    // MULTI_GPU_BOARD_GROUP_ID
        // HOST_NATIVE_ATOMIC_SUPPORTED, PAGEABLE_MEMORY_ACCESS and its USES_HOST_PAGE_TABLES
        86 | 88 | 100 => coherent,
        // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED and GPU_DIRECT_RDMA_SUPPORTED
        110 | 116 => i32::from(*config.rdma.of(gpu) == YesNo::Yes),
        115 => i32::from(config.mempools), // MEMORY_POOLS_SUPPORTED
        124 => i32::from(config.exports_dmabufs(gpu)), // DMA_BUF_SUPPORTED
        // DMA_BUF_MMAP_SUPPORTED
        152 if config.cuda_version >= DMABUF_MMAP_ATTRIBUTE => i32::from(config.maps_dmabufs(gpu)),
        _ => FIXED
            .iter()
            .find(|(number, _)| *number == attribute)
            .map(|(_, value)| *value)
            .ok_or(Error::INVALID_VALUE)?,
    })
}
