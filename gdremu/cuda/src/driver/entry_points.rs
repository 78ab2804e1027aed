//! The functions that the stand-in libcuda exports, with their arguments, preconditions and bodies.
//!
//! ```text
//! fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
//! fn cuCtxGetDevice(device: Out<i32>) in_context 2000 => |_, current| device.set(gpus::ordinal(current.gpu));
//! ```
//!
//! The first function is exported as `cuCtxDestroy_v2`, which CUDA has since 4.0, and as `cuCtxDestroy`, since 2.0.
//! `initialized` is how it begins (`entry`), its body the function `cuCtxDestroy_v2` in the topic's module. The second
//! one has its body here.

use std::ffi::{c_char, c_void};

use gdremu_core::cuda::types::{AccessDesc, AllocationProp, IpcHandle, Location, PoolProps, Uuid};
use gdremu_core::cuda::{Function, name_of};
use gdremu_core::gpu::pci;
use gdremu_core::gpu::physical::{BLOCK, GPU_BYTES, ObjectId};

use super::copy::{Any, Device, copy};
use super::fill::fill;
use super::kernel::{Request, SharedBytes};
use super::state::{ContextHandle, EventHandle, FunctionHandle, ModuleHandle, PoolHandle, STACK, StreamHandle};
use super::*;
use crate::args::{In, Out, Untyped};
use crate::error::{Error, ensure};
use crate::gpus;

/// The body that the description has, or a call of the function of this name with what its entry passes.
macro_rules! body {
    ($entry:ident $function:path, $($argument:ident)*, $body:expr) => { $body };
    (with_state $function:path, $($argument:ident)*,) => { |state| $function(state, $($argument),*) };
    (in_context $function:path, $($argument:ident)*,) => { |state, current| $function(state, current, $($argument),*) };
    ($entry:ident $function:path, $($argument:ident)*,) => { || $function($($argument),*) };
}

/// Exports a function under its symbols.
macro_rules! entry_point {
    ($entry:ident $module:ident $name:ident ($($argument:ident: $type:ty),*) [$($body:expr)?] $($symbol:ident)*) => {
        const _: () = {
            extern "C" fn function($($argument: $type),*) -> i32 {
                entry::$entry(name_of(stringify!($name)), body!($entry $module::$name, $($argument)*, $($body)?))
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
}

macro_rules! declare {
    ($symbol:ident ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" {
            pub(crate) safe fn $symbol($($argument: $type),*) -> i32;
        }
    };
}

macro_rules! function {
    ($symbol:ident $since:literal) => {
        Function { symbol: stringify!($symbol), since: $since, address: exported::$symbol as *const c_void }
    };
}

macro_rules! entry_points {
    ($($module:ident { $(
        fn $first:ident $arguments:tt $entry:ident $since:literal $(, $also:ident $also_since:literal)*
            $(=> $body:expr)?;
    )* })*) => {
        $($(entry_point!($entry $module $first $arguments [$($body)?] $first $($also)*);)*)*

        /// The exported functions, by their symbols. Tools that hook these see their callers.
        pub(crate) mod exported {
            use super::*;

            $($(
                declare!($first $arguments);
                $(declare!($also $arguments);)*
            )*)*
        }

        /// All functions, those of one name in the order of their versions.
        pub(super) const FUNCTIONS: &[Function] = &[$($(
            $(function!($also $also_since),)*
            function!($first $since),
        )*)*];
    };
}

entry_points! {
    init {
        fn cuInit(flags: u32) without_init 2000 => || {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                ensure(!gpus::visible().is_empty(), Error::NO_DEVICE)?;
                state::initialize()
            };
        fn cuDriverGetVersion(version: Out<i32>) without_init 2020
            => || version.set(gpus::config().cuda_version as i32);
    }
    error_text {
        fn cuGetErrorName(error: i32, text: Out<*const c_char>) without_init 6000
            => || error_text::find(error, text, |known| known.name);
        fn cuGetErrorString(error: i32, text: Out<*const c_char>) without_init 6000
            => || error_text::find(error, text, |known| known.text);
    }
    proc_address {
        // The form of CUDA 11.3, which does not report why a function is missing.
        fn cuGetProcAddress(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64)
            without_init 11030 => || match proc_address::query(name, function, version, flags)? {
                proc_address::FOUND => Ok(()),
                _ => Err(Error::NOT_FOUND),
            };
        // Succeeds with NULL and a status where there is no such function.
        fn cuGetProcAddress_v2(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64,
               status: Out<u32>)
            without_init 12000 => || {
                status.set_if_wanted(proc_address::query(name, function, version, flags)?);
                Ok(())
            };
    }
    device {
        fn cuDeviceGetCount(count: Out<i32>) initialized 2000
            => || count.set(gpus::visible().len() as i32);
        fn cuDeviceGet(device: Out<i32>, ordinal: i32) initialized 2000
            => || device.fill(|| gpus::by_ordinal(ordinal).map(|_| ordinal));
        fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) initialized 2000
            => || gpus::by_ordinal(device).and_then(|_| name.set_text(device::NAME, len));
        fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: i32) initialized 11040, cuDeviceGetUuid 9020
            => || uuid.set(gpus::uuid(gpus::by_ordinal(device)?));
        fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) initialized 3020
            => || gpus::by_ordinal(device).and_then(|_| bytes.set(GPU_BYTES as usize));
        fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) initialized 2000
            => || value.fill(|| attributes::value(gpus::by_ordinal(device)?, attribute));
        fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) initialized 2000
            => || attributes::compute_capability(gpus::by_ordinal(device)?, major, minor);
        fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) initialized 4010 => || {
                let address = pci::address(gpus::by_ordinal(device)?);
                ensure(len > address.len() as i32, Error::INVALID_VALUE)?;
                text.set_text(&address, len)
            };
        fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<c_char>) initialized 4010 => || device.fill(|| {
                let gpu = device::at_pci_address(text.text()?)?;
                let visible = gpu.map(gpus::ordinal).filter(|&ordinal| ordinal >= 0);
                visible.ok_or(Error::INVALID_DEVICE)
            });
    }
    primary {
        fn cuDevicePrimaryCtxRetain(handle: Out<ContextHandle>, device: i32) with_state 7000
            => |state| handle.fill(|| primary::retain(state, gpus::by_ordinal(device)?));
        fn cuDevicePrimaryCtxRelease_v2(device: i32) initialized 11000, cuDevicePrimaryCtxRelease 7000;
        fn cuDevicePrimaryCtxReset_v2(device: i32) initialized 11000, cuDevicePrimaryCtxReset 7000
            => || primary::destroy(state::lock(), gpus::by_ordinal(device)?);
        fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) with_state 11000, cuDevicePrimaryCtxSetFlags 7000;
        fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) with_state 7000 => |state| {
                let primary = state.primaries.get(&gpus::by_ordinal(device)?).copied().unwrap_or_default();
                flags.set(primary.flags)?;
                active.set(i32::from(primary.context.is_some()))
            };
    }
    context {
        fn cuCtxCreate_v2(handle: Out<ContextHandle>, flags: u32, device: i32) with_state 3020, cuCtxCreate 2000
            => |state| handle.fill(|| context::create_current(state, flags, device));
        fn cuCtxCreate_v3(handle: Out<ContextHandle>, affinities: In<u8>, count: i32, flags: u32, device: i32)
            with_state 11040 => |state| match affinities.is_null() || count == 0 {
                true => handle.fill(|| context::create_current(state, flags, device)),
                false => Err(Error::UNSUPPORTED_EXEC_AFFINITY),
            };
        // CUctxCreateParams: affinities, their number, and what to share with graphics.
        fn cuCtxCreate_v4(handle: Out<ContextHandle>, parameters: In<[usize; 3]>, flags: u32, device: i32)
            with_state 12050 => |state| match parameters.is_null() || matches!(parameters.get()?, [0, _, 0]) {
                true => handle.fill(|| context::create_current(state, flags, device)),
                false => Err(Error::NOT_SUPPORTED),
            };
        fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
        fn cuCtxPushCurrent_v2(context: ContextHandle) with_state 4000, cuCtxPushCurrent 2000
            => |state| state.check_context(context).and_then(|()| STACK.with(|stack| stack.push(context)));
        fn cuCtxPopCurrent_v2(handle: Out<ContextHandle>) with_state 4000, cuCtxPopCurrent 2000 => |_| {
                handle.set_if_wanted(STACK.with(|stack| stack.pop()).ok_or(Error::INVALID_CONTEXT)?);
                Ok(())
            };
        fn cuCtxSetCurrent(context: ContextHandle) with_state 4000;
        fn cuCtxGetCurrent(handle: Out<ContextHandle>) with_state 4000
            => |_| handle.set(STACK.with(|stack| stack.top()).unwrap_or(0));
        fn cuCtxGetDevice(device: Out<i32>) in_context 2000
            => |_, current| device.set(gpus::ordinal(current.gpu));
        fn cuCtxGetDevice_v2(device: Out<i32>, context: ContextHandle) with_state 13000
            => |state| device.set(gpus::ordinal(context::live(state, context)?.gpu));
        fn cuCtxGetFlags(flags: Out<u32>) in_context 7000
            => |state, current| flags.set(context::live(state, current.context)?.flags);
        fn cuCtxSetFlags(flags: u32) in_context 12010;
        fn cuCtxGetId(context: ContextHandle, id: Out<u64>) with_state 12000
            => |state| id.set(context::live(state, context)?.id);
        fn cuCtxGetApiVersion(context: ContextHandle, version: Out<u32>) with_state 3020
            => |state| context::live(state, context).and_then(|_| version.set(context::API_VERSION));
        fn cuCtxSynchronize() initialized 2000 => || context::cuCtxSynchronize_v2(0);
        fn cuCtxSynchronize_v2(context: ContextHandle) initialized 13000;
        // There is no profiler.
        fn cuProfilerStart() in_context 4000 => |_, _| Ok(());
        fn cuProfilerStop() in_context 4000 => |_, _| Ok(());
    }
    peer {
        fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) initialized 4000
            => || can.set(i32::from(gpus::by_ordinal(device)? != gpus::by_ordinal(peer)?));
        fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, source: i32, destination: i32) initialized 8000
            => || value.fill(|| peer::attribute(attribute, source, destination));
        fn cuCtxEnablePeerAccess(peer: ContextHandle, flags: u32) in_context 4000;
        fn cuCtxDisablePeerAccess(peer: ContextHandle) in_context 4000;
        // The CPU's writes through a mapping and the GPU's view of them are the same memory, so nothing is in flight.
        fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) in_context 11030
            => |_, _| match (target, scope) { (0, 100 | 200) => Ok(()), _ => Err(Error::INVALID_VALUE) };
    }
    buffer {
        fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) in_context 3020 => |_, current| {
                free.set(gpus::free_bytes(current.gpu) as usize)?;
                total.set(GPU_BYTES as usize)
            };
        fn cuMemAlloc_v2(address: Out<u64>, size: usize) in_context 3020
            => |state, current| address.fill(|| buffer::alloc(state, current, size));
        fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
            in_context 3020 => |state, current| {
                pitch.check()?;
                address.fill(|| {
                    let (start, row) = buffer::alloc_pitch(state, current, width, height, element)?;
                    pitch.set(row).map(|()| start)
                })
            };
        fn cuMemFree_v2(address: u64) initialized 3020;
        fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) in_context 3020 => |state, _| {
                let (start, len) = buffer::range(state, address)?;
                base.set_if_wanted(start);
                size.set_if_wanted(len);
                Ok(())
            };
    }
    host {
        fn cuMemAllocHost_v2(address: Out<usize>, size: usize) in_context 3020
            => |state, current| address.fill(|| host::alloc_mapped(state, current, size, 0));
        fn cuMemHostAlloc(address: Out<usize>, size: usize, flags: u32) in_context 2020
            => |state, current| address.fill(|| host::alloc_mapped(state, current, size, flags));
        fn cuMemFreeHost(address: usize) initialized 2000;
        fn cuMemAllocManaged(address: Out<u64>, size: usize, flags: u32) in_context 6000
            => |state, current| address.fill(|| host::alloc_managed(state, current, size, flags));
        fn cuMemHostRegister_v2(address: usize, size: usize, flags: u32) in_context 6050, cuMemHostRegister 4000;
        fn cuMemHostUnregister(address: usize) initialized 4000;
        fn cuMemHostGetDevicePointer_v2(device: Out<u64>, address: usize, flags: u32) in_context 3020
            => |state, _| device.fill(|| host::device_pointer(state, address, flags));
        fn cuMemHostGetFlags(flags: Out<u32>, address: usize) in_context 2030
            => |state, _| flags.set(host::flags(state, address)?);
    }
    copy {
        fn cuMemcpy(to: u64, from: u64, size: usize) initialized 4000, cuMemcpy_ptds 7000
            => || copy(Any(to), Any(from), size, None);
        fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 4000, cuMemcpyAsync_ptsz 7000 => || copy(Any(to), Any(from), size, Some(stream));
        fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyHtoD_v2_ptds 7000
            => || copy(Device(to), Any(from), size, None);
        fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyHtoDAsync_v2_ptsz 7000
            => || copy(Device(to), Any(from), size, Some(stream));
        fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyDtoH_v2_ptds 7000
            => || copy(Any(to), Device(from), size, None);
        fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyDtoHAsync_v2_ptsz 7000
            => || copy(Any(to), Device(from), size, Some(stream));
        fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) initialized 3020, cuMemcpyDtoD_v2_ptds 7000
            => || copy(Device(to), Device(from), size, None);
        fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle)
            initialized 3020, cuMemcpyDtoDAsync_v2_ptsz 7000
            => || copy(Device(to), Device(from), size, Some(stream));
        fn cuMemcpyPeer(to: u64, to_context: ContextHandle, from: u64, from_context: ContextHandle, size: usize)
            initialized 4000, cuMemcpyPeer_ptds 7000
            => || copy::between([to_context, from_context], to, from, size, None);
        fn cuMemcpyPeerAsync(to: u64, to_context: ContextHandle, from: u64, from_context: ContextHandle, size: usize,
               stream: StreamHandle)
            initialized 4000, cuMemcpyPeerAsync_ptsz 7000
            => || copy::between([to_context, from_context], to, from, size, Some(stream));
    }
    fill {
        fn cuMemsetD8_v2(address: u64, value: u8, count: usize) initialized 3020, cuMemsetD8_v2_ptds 7000
            => || fill([value], address, count, None);
        fn cuMemsetD16_v2(address: u64, value: u16, count: usize) initialized 3020, cuMemsetD16_v2_ptds 7000
            => || fill(value.to_ne_bytes(), address, count, None);
        fn cuMemsetD32_v2(address: u64, value: u32, count: usize) initialized 3020, cuMemsetD32_v2_ptds 7000
            => || fill(value.to_ne_bytes(), address, count, None);
        fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: StreamHandle)
            initialized 3020, cuMemsetD8Async_ptsz 7000 => || fill([value], address, count, Some(stream));
        fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: StreamHandle)
            initialized 3020, cuMemsetD32Async_ptsz 7000 => || fill(value.to_ne_bytes(), address, count, Some(stream));
    }
    pool {
        fn cuDeviceGetDefaultMemPool(pool: Out<PoolHandle>, device: i32) with_state 11020
            => |state| pool.set(pool::default_pool(state, pool::gpu(device)?));
        fn cuDeviceGetMemPool(pool: Out<PoolHandle>, device: i32) with_state 11020
            => |state| pool.set(pool::current_pool(state, pool::gpu(device)?));
        fn cuDeviceSetMemPool(device: i32, pool: PoolHandle) with_state 11020;
        fn cuMemPoolCreate(pool: Out<PoolHandle>, props: In<PoolProps>) with_state 11020
            => |state| pool.fill(|| pool::create(state, props));
        fn cuMemPoolDestroy(pool: PoolHandle) with_state 11020;
        fn cuMemPoolTrimTo(pool: PoolHandle, _keep: usize) with_state 11020
            => |state| state.pools.get(pool).map(drop);
        fn cuMemPoolGetAttribute(pool: PoolHandle, attribute: u32, value: Out<u8>) with_state 11020
            => |state| pool::get_attribute(state.pools.get_mut(pool)?, attribute, value);
        fn cuMemPoolSetAttribute(pool: PoolHandle, attribute: u32, value: In<u8>) with_state 11020
            => |state| pool::set_attribute(state.pools.get_mut(pool)?, attribute, value);
        fn cuMemPoolSetAccess(pool: PoolHandle, wanted: In<AccessDesc>, count: usize) with_state 11020
            => |state| pool::set_access(state.pools.get_mut(pool)?, wanted, count);
        fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: StreamHandle)
            in_context 11020, cuMemAllocAsync_ptsz 11020 => |state, current| {
                let pool = pool::current_pool(state, current.gpu);
                pool::cuMemAllocFromPoolAsync(state, current, address, size, pool, stream)
            };
        fn cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: PoolHandle, stream: StreamHandle)
            in_context 11020, cuMemAllocFromPoolAsync_ptsz 11020;
        fn cuMemFreeAsync(address: u64, stream: StreamHandle) initialized 11020, cuMemFreeAsync_ptsz 11020;
    }
    pointer {
        fn cuPointerGetAttribute(data: Untyped, attribute: u32, address: u64) with_state 4000;
        fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<Untyped>, address: u64) with_state 7000
            => |state| pointer::get_all(state, count, attributes, data, address);
        fn cuMemRangeGetAttribute(data: Untyped, size: usize, attribute: u32, address: u64, count: usize)
            with_state 8000;
        fn cuPointerSetAttribute(value: In<u32>, attribute: u32, address: u64) with_state 6000;
    }
    vmm {
        // CUDA reads the properties, and accepts any.
        fn cuMemGetAllocationGranularity(granularity: Out<usize>, prop: In<AllocationProp>, option: u32)
            initialized 10020 => || match prop.get().map(|_| option)? {
                0 | 1 => granularity.set(BLOCK as usize),
                _ => Err(Error::INVALID_VALUE),
            };
        fn cuMemCreate(handle: Out<u64>, size: usize, prop: In<AllocationProp>, flags: u64) initialized 10020
            => || handle.fill(|| vmm::create(size, prop, flags));
        fn cuMemRelease(handle: u64) initialized 10020 => || gpus::change(|memory| memory.release(ObjectId(handle)));
        fn cuMemRetainAllocationHandle(handle: Out<u64>, address: *mut c_void) initialized 11000
            => || handle.fill(|| Ok(gpus::change(|memory| memory.retain_at(address.addr() as u64))?.0));
        fn cuMemGetAllocationPropertiesFromHandle(prop: Out<AllocationProp>, handle: u64) initialized 10020
            => || prop.set(vmm::properties(handle)?);
        fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, hint: u64, flags: u64)
            initialized 10020 => || address.fill(|| {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                gpus::change(|memory| memory.reserve(size as u64, alignment as u64, hint))
            });
        fn cuMemAddressFree(address: u64, size: usize) initialized 10020
            => || gpus::change(|memory| memory.unreserve(address, size as u64));
        fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) initialized 10020;
        fn cuMemUnmap(address: u64, size: usize) initialized 10020
            => || gpus::take_away(|memory| memory.unmap(address, size as u64));
        fn cuMemSetAccess(address: u64, size: usize, wanted: In<AccessDesc>, count: usize) initialized 10020;
        fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) initialized 10020 => || {
                let of = vmm::gpu_at(location.get()?)?;
                flags.set(vmm::access_flags(gpus::with(|gpus| gpus.memory().access(address, of))?))
            };
    }
    export {
        fn cuMemGetHandleForAddressRange(handle: Untyped, address: u64, size: usize, kind: u32, flags: u64)
            in_context 11070 => |_, _| handle.of().fill(|| export::range(address, size, kind, flags));
        fn cuMemExportToShareableHandle(shareable: Untyped, handle: u64, kind: u32, flags: u64) initialized 10020
            => || shareable.of().fill(|| export::object(handle, kind, flags));
        fn cuMemImportFromShareableHandle(handle: Out<u64>, shareable: usize, kind: u32) initialized 10020
            => || handle.fill(|| export::import(shareable, kind));
    }
    ipc {
        fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) in_context 4010
            => |state, _| handle.fill(|| ipc::handle_of(state, address));
        fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: u32) in_context 11000
            => |state, _| address.fill(|| ipc::open(state, handle, flags));
        fn cuIpcCloseMemHandle(address: u64) initialized 4010;
        // Pools cannot be shared. cuMemPoolCreate refuses those that could be, as
        // CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES says.
        fn cuMemPoolExportToShareableHandle(_handle: Out<u8>, _pool: usize, _kind: u32, _flags: u64) initialized 11020
            => || Err(Error::INVALID_VALUE);
        fn cuMemPoolImportFromShareableHandle(_pool: Out<usize>, _handle: usize, _kind: u32, _flags: u64)
            initialized 11020 => || Err(Error::INVALID_VALUE);
        fn cuMemPoolExportPointer(_export: Out<u8>, _address: u64) initialized 11020
            => || Err(Error::INVALID_VALUE);
        fn cuMemPoolImportPointer(_address: Out<u64>, _pool: usize, _export: In<u8>) initialized 11020
            => || Err(Error::INVALID_VALUE);
    }
    stream {
        fn cuStreamCreate(stream: Out<StreamHandle>, flags: u32) in_context 2000
            => |state, current| stream.fill(|| stream::create(state, current, flags, 0));
        fn cuStreamCreateWithPriority(stream: Out<StreamHandle>, flags: u32, priority: i32) in_context 5050
            => |state, current| stream.fill(|| stream::create(state, current, flags, priority));
        fn cuStreamDestroy_v2(stream: StreamHandle) with_state 4000, cuStreamDestroy 2000;
        fn cuStreamSynchronize(stream: StreamHandle) initialized 2000, cuStreamSynchronize_ptsz 7000;
        fn cuStreamQuery(stream: StreamHandle) in_context 2000, cuStreamQuery_ptsz 7000;
        fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32)
            initialized 3020, cuStreamWaitEvent_ptsz 7000;
        fn cuStreamGetFlags(stream: StreamHandle, flags: Out<u32>) in_context 5050, cuStreamGetFlags_ptsz 7000
            => |state, _| flags.set(stream::created(state, stream)?.map_or(0, |stream| stream.flags));
        fn cuStreamGetPriority(stream: StreamHandle, priority: Out<i32>) in_context 5050, cuStreamGetPriority_ptsz 7000
            => |state, _| priority.set(stream::created(state, stream)?.map_or(0, |stream| stream.priority));
        fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) in_context 5050 => |_, _| {
                least.set_if_wanted(0);
                greatest.set_if_wanted(stream::GREATEST_PRIORITY);
                Ok(())
            };
        fn cuLaunchHostFunc(stream: StreamHandle, function: Option<extern "C" fn(usize)>, data: usize)
            initialized 10000, cuLaunchHostFunc_ptsz 10000
            => || stream::run(stream, function.map(|function| move || function(data)));
        // How the caller waits makes no difference.
        fn cuLaunchHostFunc_v2(stream: StreamHandle, function: Option<extern "C" fn(usize)>, data: usize,
               _sync_mode: u32)
            initialized 13010 => || stream::run(stream, function.map(|function| move || function(data)));
        fn cuStreamAddCallback(stream: StreamHandle, callback: Option<extern "C" fn(StreamHandle, i32, usize)>,
               data: usize, flags: u32)
            initialized 5000, cuStreamAddCallback_ptsz 7000 => || {
                let callback = callback.filter(|_| flags == 0);
                stream::run(stream, callback.map(|callback| move || callback(stream, 0, data)))
            };
    }
    event {
        fn cuEventCreate(event: Out<EventHandle>, flags: u32) in_context 2000
            => |state, current| event.fill(|| event::create(state, current, flags));
        fn cuEventDestroy_v2(event: EventHandle) with_state 4000, cuEventDestroy 2000
            => |state| state.events.remove(event).map(drop);
        fn cuEventRecord(event: EventHandle, stream: StreamHandle) initialized 2000, cuEventRecord_ptsz 7000;
        fn cuEventRecordWithFlags(event: EventHandle, stream: StreamHandle, flags: u32)
            initialized 11010, cuEventRecordWithFlags_ptsz 11010
            => || event::check_flags(flags).and_then(|()| event::cuEventRecord(event, stream));
        fn cuEventQuery(event: EventHandle) with_state 2000;
        fn cuEventSynchronize(event: EventHandle) initialized 2000;
        fn cuEventElapsedTime(milliseconds: Out<f32>, start: EventHandle, end: EventHandle) with_state 2000
            => |state| milliseconds.set(event::elapsed(state, start, end)?);
        fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: EventHandle, end: EventHandle) with_state 12080
            => |state| milliseconds.set(event::elapsed(state, start, end)?);
    }
    capture {
        fn cuStreamBeginCapture_v2(stream: StreamHandle, mode: u32)
            in_context 10010, cuStreamBeginCapture_v2_ptsz 10010 => |state, _| capture::begin(state, stream, mode);
        fn cuStreamEndCapture(stream: StreamHandle, graph: Out<usize>) in_context 10000, cuStreamEndCapture_ptsz 10000
            => |state, _| capture::end(state, stream, graph);
        fn cuGraphDestroy(graph: usize) with_state 10000
            => |state| state.graphs.remove(graph);
        fn cuStreamIsCapturing(stream: StreamHandle, status: Out<u32>) in_context 10000, cuStreamIsCapturing_ptsz 10000
            => |state, _| status.set(capture::status(state, stream)?);
        fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) without_init 10010;
    }
    module {
        fn cuModuleLoadData(module: Out<ModuleHandle>, image: In<u8>) initialized 2000
            => || module.fill(|| module::load("cuModuleLoadData", image));
        // The options are for the compiler.
        fn cuModuleLoadDataEx(module: Out<ModuleHandle>, image: In<u8>, _options: u32, _names: In<u32>,
               _values: In<usize>)
            initialized 2010 => || module.fill(|| module::load("cuModuleLoadDataEx", image));
        fn cuModuleLoadFatBinary(module: Out<ModuleHandle>, image: In<u8>) initialized 2000
            => || module.fill(|| module::load("cuModuleLoadFatBinary", image));
        fn cuModuleUnload(module: ModuleHandle) initialized 2000;
        fn cuModuleGetFunction(function: Out<FunctionHandle>, module: ModuleHandle, name: In<c_char>) in_context 2000
            => |state, _| {
                let found = state.modules.get(module)?.functions.get(name.text()?);
                function.set(*found.ok_or(Error::NOT_FOUND)?)
            };
        fn cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: ModuleHandle, name: In<c_char>)
            in_context 3020 => |state, _| {
                let found = state.modules.get(module)?.variables.get(name.text()?).ok_or(Error::NOT_FOUND)?;
                address.set_if_wanted(found.0);
                size.set_if_wanted(found.1);
                Ok(())
            };
        // No CUlibrary can be loaded, so every handle is invalid. UCX looks this function up to replace it.
        fn cuLibraryGetGlobal(_address: Out<u64>, _size: Out<usize>, _library: usize, _name: In<c_char>)
            initialized 12000 => || Err(Error::INVALID_HANDLE);
    }
    kernel {
        fn cuFuncGetAttribute(value: Out<i32>, attribute: i32, function: FunctionHandle) in_context 2020
            => |state, current| value.set(kernel::attribute(state, current, attribute, function)?);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: FunctionHandle, threads: i32,
               shared_bytes: usize)
            in_context 6050 => |state, _| blocks.set(kernel::active_blocks(state, function, threads, shared_bytes)?);
        fn cuOccupancyMaxPotentialBlockSize(blocks: Out<i32>, threads: Out<i32>, function: FunctionHandle,
               shared_of: SharedBytes, shared_bytes: usize, limit: i32)
            initialized 6050 => || {
                let best = kernel::best_block(function, shared_of, shared_bytes, limit)?;
                blocks.set(best.0)?;
                threads.set(best.1)
            };
        fn cuLaunchKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
               block_z: u32, shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>, extra: In<In<u8>>)
            initialized 4000, cuLaunchKernel_ptsz 7000 => || {
                let grid = [grid_x, grid_y, grid_z];
                let block = [block_x, block_y, block_z];
                let request = Request { grid, block, shared_bytes, stream, cooperative: false };
                kernel::launch(function, request, parameters, extra)
            };
        fn cuLaunchCooperativeKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
               block_y: u32, block_z: u32, shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>)
            initialized 9000, cuLaunchCooperativeKernel_ptsz 9000 => || {
                let grid = [grid_x, grid_y, grid_z];
                let block = [block_x, block_y, block_z];
                let request = Request { grid, block, shared_bytes, stream, cooperative: true };
                kernel::launch(function, request, parameters, In::null())
            };
    }
}

#[cfg(test)]
mod tests {
    use gdremu_core::cuda::{Missing, newest};

    use super::FUNCTIONS;

    #[test]
    fn names_are_of_a_version() {
        let found = |name, version| newest(FUNCTIONS, name, version).map(|function| function.symbol);
        assert_eq!(found("cuMemAlloc", 13000), Ok("cuMemAlloc_v2"));
        assert_eq!(found("cuMemAlloc", 2000), Err(Missing::Version));
        assert_eq!(found("cuMemAlloc_v2", 13000), Err(Missing::Name));
        assert_eq!(found("cuCtxCreate", 3010), Ok("cuCtxCreate"));
        assert_eq!(found("cuCtxCreate", 11080), Ok("cuCtxCreate_v3"));
        assert_eq!(found("cuGetProcAddress", 11080), Ok("cuGetProcAddress"));
        assert_eq!(found("cuGetProcAddress", 12000), Ok("cuGetProcAddress_v2"));
        assert_eq!(found("cuEventRecord_ptsz", 12000), Ok("cuEventRecord_ptsz"));
    }
}
