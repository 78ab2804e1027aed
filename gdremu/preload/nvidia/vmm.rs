//! CUDA's virtual memory management, which makes the program's memory exportable, and revokes pins
//! that are not persistent when it is unmapped.

use gdremu_core::cuda::types::AllocationProp;
use gdremu_core::gpu::nvidia::cuda::{Status, check_status};

use crate::entry::call;
use crate::state;

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
