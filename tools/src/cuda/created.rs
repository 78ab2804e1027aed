//! Allocates GPU memory by cuMemCreate.

use std::ffi::c_ulonglong;

use anyhow::Result;
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle as Handle, CUmemLocationType,
};

use super::driver::functions;
use super::gpu::Gpu;

functions! {
    struct Functions {
        granularity: c"cuMemGetAllocationGranularity"
            (granularity: *mut usize, properties: *const CUmemAllocationProp, kind: CUmemAllocationGranularity_flags);
        create: c"cuMemCreate" (handle: *mut Handle, len: usize, properties: *const CUmemAllocationProp, flags: c_ulonglong);
        reserve: c"cuMemAddressReserve"
            (start: *mut CUdeviceptr, len: usize, alignment: usize, wanted: CUdeviceptr, flags: c_ulonglong);
        map: c"cuMemMap" (start: CUdeviceptr, len: usize, offset: usize, handle: Handle, flags: c_ulonglong);
        set_access: c"cuMemSetAccess" (start: CUdeviceptr, len: usize, access: *const CUmemAccessDesc, count: usize);
    }
}

/// Allocates at least `len` bytes that can be pinned, and returns their address.
pub(super) fn create(gpu: &Gpu, len: usize) -> Result<CUdeviceptr> {
    let f = Functions::get()?;
    let properties = properties(gpu);
    let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access = CUmemAccessDesc { location: properties.location, flags };
    let mut granularity = 0;
    let mut handle = 0;
    let mut start = 0;
    // SAFETY: all pointers are to local variables; handle, address and length belong together.
    unsafe {
        f.granularity(&mut granularity, &properties, minimum)?;
        let len = len.next_multiple_of(granularity.max(1));
        f.create(&mut handle, len, &properties, 0)?;
        f.reserve(&mut start, len, 0, 0, 0)?;
        f.map(start, len, 0, handle, 0)?;
        f.set_access(start, len, &access, 1)?;
    }
    Ok(start)
}

/// Returns the properties of memory of this GPU that can be pinned.
fn properties(gpu: &Gpu) -> CUmemAllocationProp {
    // SAFETY: all fields of the struct are numbers and pointers, for which 0 is a valid value.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.__bindgen_anon_1.id = gpu.device().handle;
    properties.allocFlags.gpuDirectRDMACapable = 1;
    properties
}
