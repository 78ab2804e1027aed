//! cuMemAlloc and related functions, with the program's buffers in exportable memory. cuMemCreate makes it exportable, and
//! cuMemUnmap revokes pins that are not persistent.

use gdremu_core::cuda::types::AllocationProp;
use gdremu_core::gpu::nvidia::cuda::{Cuda, Status, check_status};

use crate::entry::call;
use crate::state;

/// Allocates memory on the GPU of the calling thread's context. `None`: libcuda must do it, because
/// the GPU has no exportable memory, or because libcuda itself is calling.
fn alloc(cuda: &Cuda, size: usize) -> Result<Option<u64>, Status> {
    let gpu = cuda.current_gpu()?;
    if !cuda.makes_exportable(gpu) {
        return Ok(None);
    }
    let process = state::enter();
    let allocated = process.map(|mut process| process.gpu.nvidia().alloc(cuda, gpu, size as u64));
    allocated.transpose()
}

pub(crate) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> Status {
    call("cuMemAlloc", |cuda| {
        let wrong = address.is_null() || size == 0;
        let allocated = if wrong { None } else { alloc(cuda, size)? };
        // SAFETY: the program's arguments.
        unsafe {
            match allocated {
                Some(va) => address.write(va),
                None => check_status((cuda.cuMemAlloc_v2)(address, size))?,
            }
        }
        Ok(())
    })
}

/// The replaced buffer that contains an address, as start and length.
fn buffer(va: u64) -> Option<(u64, u64)> {
    state::enter()?.gpu.nvidia().buffer(va)
}

pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> Status {
    call("cuMemFree", |cuda| {
        let gpu = state::enter().and_then(|mut process| process.gpu.nvidia().gpu_of(address));
        let Some(gpu) = gpu else {
            // SAFETY: the program's argument.
            return check_status(unsafe { (cuda.cuMemFree_v2)(address) });
        };
        // Wait for all work on the memory first, as the real function does.
        cuda.wait_for(gpu)?;
        let mut process = state::lock();
        let lost = process.gpu.nvidia().free(cuda, address)?;
        process.revoke(&lost);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) -> Status {
    call("cuMemGetAddressRange", |cuda| {
        // SAFETY: the program's arguments; either may be NULL.
        unsafe {
            check_status((cuda.cuMemGetAddressRange_v2)(base, size, address))?;
            if let Some((start, len)) = buffer(address) {
                if let Some(base) = base.as_mut() {
                    *base = start;
                }
                if let Some(size) = size.as_mut() {
                    *size = len as usize;
                }
            }
        }
        Ok(())
    })
}

const SYNC_MEMOPS: u32 = 6;

/// CUDA accepts SYNC_MEMOPS only for its own buffers. Programs that set it on replaced
/// buffers must not fail; their small copies stay asynchronous, see `gdremu/README.md`.
pub(crate) unsafe extern "C" fn cuPointerSetAttribute(value: *const u32, attribute: u32, address: u64) -> Status {
    call("cuPointerSetAttribute", |cuda| {
        if attribute == SYNC_MEMOPS && !value.is_null() && buffer(address).is_some() {
            return Ok(());
        }
        // SAFETY: the program's arguments.
        unsafe { check_status((cuda.cuPointerSetAttribute)(value, attribute, address)) }
    })
}

// ---- Virtual memory management ----

pub(crate) unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    size: usize,
    properties: *const AllocationProp,
    flags: u64,
) -> Status {
    call("cuMemCreate", |cuda| {
        // SAFETY: the program's argument.
        let wanted = unsafe { properties.as_ref() };
        let gpu = wanted.and_then(AllocationProp::gpu).filter(|&gpu| cuda.makes_exportable(gpu));
        if let (Some(wanted), Some(gpu)) = (wanted, gpu) {
            let exportable = wanted.exportable();
            // SAFETY: the program's arguments but one; a handle that was made has been written.
            unsafe {
                if (cuda.cuMemCreate)(handle, size, &exportable, flags) == 0 {
                    if let Some(mut process) = state::enter() {
                        process.gpu.nvidia().created(cuda, gpu, *handle);
                    }
                    return Ok(());
                }
            }
        }
        // Some kinds of memory cannot be exported.
        // SAFETY: the program's arguments.
        check_status(unsafe { (cuda.cuMemCreate)(handle, size, properties, flags) })
    })
}

pub(crate) extern "C" fn cuMemUnmap(address: u64, size: usize) -> Status {
    call("cuMemUnmap", |cuda| {
        // SAFETY: the program's arguments.
        check_status(unsafe { (cuda.cuMemUnmap)(address, size) })?;
        if let Some(mut process) = state::enter() {
            let lost = process.gpu.nvidia().lost(address, size as u64);
            process.revoke(&lost);
        }
        Ok(())
    })
}
