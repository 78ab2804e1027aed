//! Structures of the driver API, laid out as in C.

use gdremu_core::gpu::Shared;

/// CUmemLocation: 1 = a device, by its ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: u32,
    pub(super) id: i32,
}

/// `Location::kind` of a device.
pub(super) const LOCATION_DEVICE: u32 = 1;

/// CUmemAllocationType: memory that stays where it is.
pub(super) const ALLOCATION_PINNED: u32 = 1;

/// CUmemAllocationHandleType: a file descriptor.
pub(super) const HANDLE_POSIX_FD: u32 = 1;

/// CUmemAllocationProp.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct AllocationProp {
    pub(super) kind: u32,
    pub(super) handle_types: u32,
    pub(super) location: Location,
    pub(super) win32_metadata: usize,
    pub(super) compression: u8,
    pub(super) gpu_direct_rdma_capable: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

/// CUmemAccessDesc.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: u32,
}

/// CUmemPoolProps.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PoolProps {
    pub(super) kind: u32,
    pub(super) handle_types: u32,
    pub(super) location: Location,
    pub(super) win32_attributes: usize,
    pub(super) max_size: usize,
    pub(super) usage: u16,
    pub(super) gpu_direct_rdma_capable: u8,
    pub(super) reserved: [u8; 53],
}

/// CUDA_POINTER_ATTRIBUTE_P2P_TOKENS.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct P2pTokens {
    pub(super) token: u64,
    pub(super) va_space: u32,
}

/// CUipcMemHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct IpcHandle {
    pub(super) process: u64,
    /// The buffer's number in the process: never used twice.
    pub(super) id: u64,
    pub(super) memory: Shared,
    pub(super) unused: u64,
}

/// CUmemPoolPtrExportData.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PoolExport(pub(super) [u8; 64]);

/// CUuuid.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Uuid(pub(super) [u8; 16]);

const _: () = {
    assert!(size_of::<Location>() == 8);
    assert!(size_of::<AllocationProp>() == 32);
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<PoolProps>() == 88);
    assert!(size_of::<P2pTokens>() == 16);
    assert!(size_of::<IpcHandle>() == 64);
};
