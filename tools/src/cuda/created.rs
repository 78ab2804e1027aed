//! Memory from cuMemCreate.

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
        release: c"cuMemRelease" (handle: Handle);
        reserve: c"cuMemAddressReserve"
            (start: *mut CUdeviceptr, len: usize, alignment: usize, wanted: CUdeviceptr, flags: c_ulonglong);
        unreserve: c"cuMemAddressFree" (start: CUdeviceptr, len: usize);
        map: c"cuMemMap" (start: CUdeviceptr, len: usize, offset: usize, handle: Handle, flags: c_ulonglong);
        unmap: c"cuMemUnmap" (start: CUdeviceptr, len: usize);
        set_access: c"cuMemSetAccess" (start: CUdeviceptr, len: usize, access: *const CUmemAccessDesc, count: usize);
    }
}

/// An allocation at an address of its own. Dropping it undoes the steps that succeeded.
#[derive(Debug)]
pub(super) struct Created {
    functions: &'static Functions,
    len: usize,
    handle: Handle,
    pub(super) start: CUdeviceptr,
    mapped: bool,
}

impl Created {
    /// At least `len` bytes that can be pinned.
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Created> {
        let f = Functions::get()?;
        let mut new = Created { functions: f, len: 0, handle: 0, start: 0, mapped: false };
        let properties = properties(gpu);
        let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = CUmemAccessDesc { location: properties.location, flags };
        let mut granularity = 0;
        // SAFETY: all pointers are to local variables and fields that outlive each call; handle,
        // address and length belong together.
        unsafe {
            f.granularity(&mut granularity, &properties, minimum)?;
            new.len = len.next_multiple_of(granularity.max(1));
            f.create(&mut new.handle, new.len, &properties, 0)?;
            f.reserve(&mut new.start, new.len, 0, 0, 0)?;
            f.map(new.start, new.len, 0, new.handle, 0)?;
            new.mapped = true;
            f.set_access(new.start, new.len, &access, 1)?;
        }
        Ok(new)
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        let f = self.functions;
        // SAFETY: `new` made these, and nothing else uses them; undone in the opposite order.
        unsafe {
            if self.mapped {
                let _ = f.unmap(self.start, self.len);
            }
            if self.start != 0 {
                let _ = f.unreserve(self.start, self.len);
            }
            if self.handle != 0 {
                let _ = f.release(self.handle);
            }
        }
    }
}

/// Memory of this GPU that can be pinned.
fn properties(gpu: &Gpu) -> CUmemAllocationProp {
    // SAFETY: all its fields are numbers and pointers, for which 0 is a value.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.__bindgen_anon_1.id = gpu.device().handle;
    properties.allocFlags.gpuDirectRDMACapable = 1;
    properties
}
