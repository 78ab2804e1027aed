//! The functions that replace libcuda's. cuMemAlloc and related ones give the program buffers in exportable memory,
//! cuMemCreate makes its memory exportable, and cuMemUnmap revokes pins that are not persistent.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use gdremu_core::cuda::types::AllocationProp;
use gdremu_core::gpu::buffers::Buffer;

use crate::cuda::{self, Cuda, Status, check_status};
use crate::{gpus, replaced, state};

/// The CUresult CUDA_ERROR_SHARED_OBJECT_INIT_FAILED.
const NO_LIBCUDA: Status = 303;

/// Passes the real libcuda's functions to `body`, the body of a replacement. If gdremu's option `--fault` makes this
/// call fail, returns the error and does not run `body`.
fn call(name: &str, body: impl FnOnce(&'static Cuda) -> Result<(), Status>) -> Status {
    let mut process = state::enter();
    // `Cuda::get` needs the lock that `enter` takes: our dlsym finds the real functions only while the lock is held.
    let cuda = Cuda::get();
    if let Some(process) = &mut process
        && let Some(fault) = process.faults.take(name)
    {
        return fault.0 as Status;
    }
    drop(process);
    match cuda {
        Some(cuda) => body(cuda).err().unwrap_or(0),
        None => NO_LIBCUDA,
    }
}

pub(crate) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> Status {
    call("cuMemAlloc", |cuda| {
        if !address.is_null() && size > 0 {
            let gpu = cuda.current_gpu()?;
            // If libcuda itself calls this function while gdremu holds its lock, `enter` returns `None`, and the real
            // function runs.
            if let Some(mut process) = state::enter() {
                let va = gpus(&mut process).alloc(cuda, gpu, size as u64)?;
                // SAFETY: the argument is the program's, which must be valid for CUDA.
                unsafe { address.write(va) };
                return Ok(());
            }
        }
        // SAFETY: the arguments are those of the program, which must pass arguments that are valid for CUDA.
        check_status(unsafe { (cuda.cuMemAlloc_v2)(address, size) })
    })
}

/// Returns the buffer that contains an address, if gdremu's replacement of cuMemAlloc made the buffer.
fn buffer(va: u64) -> Option<Buffer> {
    gpus(&mut state::enter()?).buffers.find(va)
}

/// Returns the GPU of the buffer that starts at an address, if gdremu's replacement of cuMemAlloc made the buffer.
fn gpu_of(va: u64) -> Option<i32> {
    gpus(&mut state::enter()?).buffers.kind_of(va)
}

pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> Status {
    call("cuMemFree", |cuda| {
        let Some(gpu) = gpu_of(address) else {
            // SAFETY: the argument is the program's, which must be valid for CUDA.
            return check_status(unsafe { (cuda.cuMemFree_v2)(address) });
        };
        // Waits for all work on the memory first, as the real function does.
        cuda.wait_for(gpu)?;
        let mut process = state::lock();
        let lost = gpus(&mut process).free(cuda, address)?;
        process.revoke(&lost);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) -> Status {
    call("cuMemGetAddressRange", |cuda| {
        // SAFETY: the arguments are the program's. `base` and `size` may be NULL.
        unsafe {
            check_status((cuda.cuMemGetAddressRange_v2)(base, size, address))?;
            if let Some(Buffer { start, len, .. }) = buffer(address) {
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

/// Accepts the attribute SYNC_MEMOPS, without effect, for buffers of gdremu's cuMemAlloc. Their memory is from
/// cuMemMap, for which CUDA refuses the attribute, so programs would fail otherwise. See also `gdremu/README.md`.
pub(crate) unsafe extern "C" fn cuPointerSetAttribute(value: *const u32, attribute: u32, address: u64) -> Status {
    call("cuPointerSetAttribute", |cuda| {
        if attribute == SYNC_MEMOPS && !value.is_null() && buffer(address).is_some() {
            return Ok(());
        }
        // SAFETY: the arguments are the program's, which must be valid for CUDA.
        unsafe { check_status((cuda.cuPointerSetAttribute)(value, attribute, address)) }
    })
}

pub(crate) unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    size: usize,
    properties: *const AllocationProp,
    flags: u64,
) -> Status {
    call("cuMemCreate", |cuda| {
        // SAFETY: the arguments are the program's, except the properties. A call that succeeds has written `handle`.
        unsafe {
            if let Some(wanted) = properties.as_ref()
                && let Some(gpu) = cuda::gpu_of(wanted)
                && (cuda.cuMemCreate)(handle, size, &cuda::exportable(*wanted), flags) == 0
            {
                if let Some(mut process) = state::enter() {
                    gpus(&mut process).prepare(cuda, gpu, || cuda.export_object(*handle));
                }
                return Ok(());
            }
        }
        // This is not GPU memory, or CUDA refused to make it exportable. So CUDA gets the program's request unchanged.
        // SAFETY: the arguments are the program's, which must be valid for CUDA.
        check_status(unsafe { (cuda.cuMemCreate)(handle, size, properties, flags) })
    })
}

pub(crate) extern "C" fn cuMemUnmap(address: u64, size: usize) -> Status {
    call("cuMemUnmap", |cuda| {
        // SAFETY: the arguments are the program's, which must be valid for CUDA.
        check_status(unsafe { (cuda.cuMemUnmap)(address, size) })?;
        if let Some(mut process) = state::enter() {
            let lost = gpus(&mut process).lost(address, size as u64);
            process.revoke(&lost);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *const c_void,
    version: c_int,
    flags: u64,
    found: *mut c_uint,
) -> Status {
    call("cuGetProcAddress", |cuda| {
        // SAFETY: the arguments are the program's, which must be valid for CUDA. If the call succeeds, `name` ends with
        // a NUL byte, and `function` has been written.
        unsafe {
            check_status((cuda.cuGetProcAddress_v2)(name, function, version, flags, found))?;
            if !(*function).is_null()
                && let Ok(name) = CStr::from_ptr(name).to_str()
                && let Some(ours) = replaced::by_name(name)
            {
                function.write(ours);
            }
        }
        Ok(())
    })
}
