//! Structures of the driver API, laid out as in C.

use gdremu_core::gpu::Shared;

/// CUmemLocation: 1 = a device, by its ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// `Location::kind` of a device.
pub(crate) const LOCATION_DEVICE: u32 = 1;

/// CUmemAllocationType: memory that stays where it is.
pub(crate) const ALLOCATION_PINNED: u32 = 1;

/// CUmemAllocationHandleType: a file descriptor.
pub(crate) const HANDLE_POSIX_FD: u32 = 1;

/// CUmemAllocationProp.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AllocationProp {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pub(crate) win32_metadata: usize,
    pub(crate) compression: u8,
    pub(crate) gpu_direct_rdma_capable: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// CUmemAccessDesc.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// CUmemPoolProps.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProps {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    pub(crate) win32_attributes: usize,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) gpu_direct_rdma_capable: u8,
    pub(crate) reserved: [u8; 53],
}

/// CUDA_POINTER_ATTRIBUTE_P2P_TOKENS.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct P2pTokens {
    pub(crate) token: u64,
    pub(crate) va_space: u32,
}

/// CUipcMemHandle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle {
    pub(crate) process: u64,
    /// The buffer's number in the process: never used twice.
    pub(crate) id: u64,
    pub(crate) memory: Shared,
    pub(crate) unused: u64,
}

/// CUmemPoolPtrExportData.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolExport(pub(crate) [u8; 64]);

/// CUuuid.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Uuid(pub(crate) [u8; 16]);

const _: () = {
    assert!(size_of::<Location>() == 8);
    assert!(size_of::<AllocationProp>() == 32);
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<PoolProps>() == 88);
    assert!(size_of::<P2pTokens>() == 16);
    assert!(size_of::<IpcHandle>() == 64);
};
