//! Memory from cuMemCreate.

use std::ffi::c_ulonglong;

use anyhow::Result;
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocation_st__bindgen_ty_1, CUmemLocationType,
};

use super::driver::{CudaError, Driver, functions};
use super::gpu::Gpu;

functions! {
    struct Functions {
        granularity: c"cuMemGetAllocationGranularity"
            (*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);
        create: c"cuMemCreate"
            (*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        release: c"cuMemRelease" (CUmemGenericAllocationHandle);
        reserve: c"cuMemAddressReserve"
            (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        unreserve: c"cuMemAddressFree" (CUdeviceptr, usize);
        map: c"cuMemMap" (CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        unmap: c"cuMemUnmap" (CUdeviceptr, usize);
        set_access: c"cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    }
}

/// An allocation at an address of its own. Dropping it undoes the steps that succeeded.
#[derive(Debug)]
pub(super) struct Created {
    driver: &'static Driver,
    functions: &'static Functions,
    len: usize,
    handle: CUmemGenericAllocationHandle,
    address: CUdeviceptr,
    mapped: bool,
}

impl Created {
    /// At least `len` bytes that can be pinned.
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Created> {
        let (driver, properties) = (gpu.driver(), properties(gpu));
        let mut created =
            Created { driver, functions: Functions::get(driver)?, len: 0, handle: 0, address: 0, mapped: false };
        created.make(gpu, &properties, len)?;
        Ok(created)
    }

    fn make(&mut self, gpu: &Gpu, properties: &CUmemAllocationProp, len: usize) -> Result<(), CudaError> {
        let (driver, f) = (self.driver, self.functions);
        let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let access =
            CUmemAccessDesc { location: location(gpu), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        let mut granularity = 0;
        // SAFETY: all pointers are to local variables and fields that outlive each call; handle,
        // address and length belong together.
        unsafe {
            let answer = (f.granularity)(&mut granularity, properties, minimum);
            driver.check("cuMemGetAllocationGranularity", answer)?;
            self.len = len.next_multiple_of(granularity.max(1));
            let answer = (f.create)(&mut self.handle, self.len, properties, 0);
            driver.check("cuMemCreate", answer)?;
            let answer = (f.reserve)(&mut self.address, self.len, 0, 0, 0);
            driver.check("cuMemAddressReserve", answer)?;
            let answer = (f.map)(self.address, self.len, 0, self.handle, 0);
            driver.check("cuMemMap", answer)?;
            self.mapped = true;
            let answer = (f.set_access)(self.address, self.len, &access, 1);
            driver.check("cuMemSetAccess", answer)
        }
    }

    pub(super) fn start(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        let f = self.functions;
        // SAFETY: `make` made these, and nothing else uses them; undone in the opposite order.
        unsafe {
            if self.mapped {
                (f.unmap)(self.address, self.len);
            }
            if self.address != 0 {
                (f.unreserve)(self.address, self.len);
            }
            if self.handle != 0 {
                (f.release)(self.handle);
            }
        }
    }
}

/// The memory of this GPU.
pub(super) fn location(gpu: &Gpu) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: gpu.handle() },
    }
}

fn properties(gpu: &Gpu) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(gpu),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 1,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
