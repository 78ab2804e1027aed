//! Structures and values of the CUDA driver API. Structures are laid out as in C.
#![forbid(unsafe_code)]

use crate::gpu::Shared;

/// A CUmemLocation. If `kind` is [`LOCATION_DEVICE`], `id` is the ordinal of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

pub const LOCATION_DEVICE: u32 = 1;

/// A CUmemAllocationType: memory that does not migrate.
pub const ALLOCATION_PINNED: u32 = 1;

/// A CUmemAllocationHandleType: the handle is a file descriptor.
pub const HANDLE_POSIX_FD: u32 = 1;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AllocationProp {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub win32_metadata: usize,
    pub compression: u8,
    pub gpu_direct_rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AccessDesc {
    pub location: Location,
    pub flags: u32,
}

/// The value of CU_POINTER_ATTRIBUTE_P2P_TOKENS, for peer-to-peer access.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct P2pTokens {
    pub token: u64,
    pub va_space: u32,
}

/// The contents of a CUipcMemHandle, which a program passes to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IpcHandle {
    pub process: u64,
    /// The buffer's id, which no other buffer ever gets.
    pub id: u64,
    pub memory: Shared,
    pub unused: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Uuid(pub [u8; 16]);

const _: () = {
    assert!(size_of::<Location>() == 8);
    assert!(size_of::<AllocationProp>() == 32);
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<P2pTokens>() == 16);
    assert!(size_of::<IpcHandle>() == 64);
};
