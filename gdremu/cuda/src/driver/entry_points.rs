//! The functions that the stand-in libcuda exports, with their arguments, preconditions and bodies. Two examples:
//!
//! ```text
//! fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
//! fn cuCtxGetDevice() in_context 2000 -> i32 => |_, current| Ok(gpus::ordinal(current.gpu));
//! ```
//!
//! The first function is exported as `cuCtxDestroy_v2`, which CUDA has since 4.0, and as `cuCtxDestroy`, since 2.0. It
//! runs in `entry::initialized`. It stands under `context` in the list below, so its body is the Rust function
//! `cuCtxDestroy_v2` of the module `context`. The second function has its body in the list, after `=>`. C programs pass
//! it a pointer to its result, an `Out<i32>`, as first argument.

use std::ffi::{c_char, c_int, c_void};

use gdremu_core::cuda::name_of;
use gdremu_core::cuda::types::{AccessDesc, AllocationProp, IpcHandle, Uuid};
use gdremu_core::gpu::pci;
use gdremu_core::gpu::physical::{BLOCK, GPU_BYTES, ObjectId};

use super::copy::{Any, Device, copy, fill};
use super::kernel::{Request, SharedBytes};
use super::state::{ContextHandle, EventHandle, FunctionHandle, ModuleHandle, STACK, StreamHandle};
use super::*;
use crate::args::{In, Out};
use crate::error::{self, Error, ensure, valid};
use crate::gpus;

/// Returns the body of a function: the expression after `=>`, or a call of the Rust function with the same name.
macro_rules! body {
    ($entry:ident $function:path, $($argument:ident)*, $body:expr) => { $body };
    (with_state $function:path, $($argument:ident)*,) => { |state| $function(state, $($argument),*) };
    (in_context $function:path, $($argument:ident)*,) => { |state, current| $function(state, current, $($argument),*) };
    ($entry:ident $function:path, $($argument:ident)*,) => { || $function($($argument),*) };
}

macro_rules! place {
    () => {
        Out::NOWHERE
    };
    ($to:ident $type:ty) => {
        $to
    };
}

/// Exports a function of the list below under each of its symbols.
macro_rules! entry_point {
    (
        $entry:ident $module:ident $name:ident ($($argument:ident: $type:ty),*) [$($to:ty)?] [$($body:expr)?]
        $($symbol:ident)*
    ) => {
        const _: () = {
            extern "C" fn function($(to: Out<$to>,)? $($argument: $type),*) -> i32 {
                let name = name_of(stringify!($name));
                entry::$entry(name, place!($(to $to)?), body!($entry $module::$name, $($argument)*, $($body)?))
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
}

macro_rules! declare {
    ([$($symbol:ident)*] $arguments:tt $to:tt) => { $(declare!($symbol $arguments $to);)* };
    ($symbol:ident ($($argument:ident: $type:ty),*) [$($to:ty)?]) => {
        unsafe extern "C" {
            pub(crate) safe fn $symbol($(to: Out<$to>,)? $($argument: $type),*) -> i32;
        }
    };
}

pub(super) struct Function {
    pub(super) symbol: &'static str,
    /// The first CUDA version with this symbol, such as 3020 for 3.2.
    pub(super) since: u32,
    pub(super) address: *const c_void,
}

macro_rules! entry_points {
    ($($module:ident { $(
        fn $first:ident $arguments:tt $entry:ident $since:literal $(, $also:ident $also_since:literal)*
            $(-> $to:ty)? $(=> $body:expr)?;
    )* })*) => {
        $($(entry_point!($entry $module $first $arguments [$($to)?] [$($body)?] $first $($also)*);)*)*

        /// Declares the exported functions, so that this library, too, calls them through their symbols. Tools that
        /// overwrite the first instructions of an exported function then get this library's calls as well.
        pub(crate) mod exported {
            use super::*;

            $($(declare!([$first $($also)*] $arguments [$($to)?]);)*)*
        }

        /// All exported symbols. The symbols of one function are in the order of their CUDA versions.
        pub(super) const FUNCTIONS: &[Function] = &[$($(
            $(Function { symbol: stringify!($also), since: $also_since, address: exported::$also as *const c_void },)*
            Function { symbol: stringify!($first), since: $since, address: exported::$first as *const c_void },
        )*)*];
    };
}

entry_points! {
    device {
        fn cuInit(flags: u32) without_init 2000 => || {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                ensure(!gpus::visible().is_empty(), Error::NO_DEVICE)?;
                state::initialize()
            };
        fn cuDriverGetVersion() without_init 2020 -> i32 => || Ok(gpus::config().cuda_version as i32);
        fn cuDeviceGetCount() initialized 2000 -> i32 => || Ok(gpus::visible().len() as i32);
        fn cuDeviceGet(ordinal: i32) initialized 2000 -> i32 => || gpus::by_ordinal(ordinal).map(|_| ordinal);
        fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) initialized 2000
            => || gpus::by_ordinal(device).and_then(|_| name.set_text(device::NAME, len));
        fn cuDeviceGetUuid_v2(device: i32) initialized 11040, cuDeviceGetUuid 9020 -> Uuid
            => || gpus::by_ordinal(device).map(gpus::uuid);
        fn cuDeviceTotalMem_v2(device: i32) initialized 3020 -> usize
            => || gpus::by_ordinal(device).map(|_| GPU_BYTES as usize);
        fn cuDeviceGetAttribute(attribute: i32, device: i32) initialized 2000 -> i32
            => || device::value(gpus::by_ordinal(device)?, attribute);
        fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) initialized 4010 => || {
                let address = pci::address(gpus::by_ordinal(device)?);
                ensure(len > address.len() as i32, Error::INVALID_VALUE)?;
                text.set_text(&address, len)
            };
        fn cuDeviceGetByPCIBusId(text: In<c_char>) initialized 4010 -> i32 => || device::at_pci_address(text.text()?);
        fn cuDeviceCanAccessPeer(device: i32, peer: i32) initialized 4000 -> i32
            => || Ok(i32::from(gpus::by_ordinal(device)? != gpus::by_ordinal(peer)?));
        fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) initialized 2000 => || {
                let capability = device::capability(gpus::by_ordinal(device)?)? as i32;
                major.set(capability / 10)?;
                minor.set(capability % 10)
            };
        // Does nothing. The emulated GPU's memory is the memory that the CPU maps, so no write is ever in flight.
        fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) in_context 11030
            => |_, _| ensure(target == 0 && matches!(scope, 100 | 200), Error::INVALID_VALUE);
    }
    error {
        fn cuGetErrorName(error: i32, text: Out<*const c_char>) without_init 6000
            => || text.set_text_or_null(error::text_of_driver(error).map(|known| known.name));
        fn cuGetErrorString(error: i32, text: Out<*const c_char>) without_init 6000
            => || text.set_text_or_null(error::text_of_driver(error).map(|known| known.text));
    }
    proc_address {
        fn cuGetExportTable(table: Out<*const c_void>, uuid: In<u8>) without_init 3000;
        // This is the form of CUDA 11.3, which does not report why a function is missing.
        fn cuGetProcAddress(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64)
            without_init 11030 => || match proc_address::query(name, function, version, flags)? {
                proc_address::FOUND => Ok(()),
                _ => Err(Error::NOT_FOUND),
            };
        // If there is no function of this name and version, this succeeds, and stores NULL and a status.
        fn cuGetProcAddress_v2(name: In<c_char>, function: Out<*const c_void>, version: i32, flags: u64,
               status: Out<u32>)
            without_init 12000 => || {
                status.set_if_wanted(proc_address::query(name, function, version, flags)?);
                Ok(())
            };
    }
    context {
        fn cuDevicePrimaryCtxRetain(device: i32) with_state 7000 -> ContextHandle;
        fn cuDevicePrimaryCtxRelease_v2(device: i32) initialized 11000, cuDevicePrimaryCtxRelease 7000;
        fn cuDevicePrimaryCtxReset_v2(device: i32) initialized 11000, cuDevicePrimaryCtxReset 7000
            => || context::reset_primary(state::lock(), gpus::by_ordinal(device)?);
        fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) with_state 11000, cuDevicePrimaryCtxSetFlags 7000;
        fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) with_state 7000 => |state| {
                let primary = state.primaries.get(&gpus::by_ordinal(device)?).copied().unwrap_or_default();
                flags.set(primary.flags)?;
                active.set(i32::from(primary.context.is_some()))
            };
        fn cuCtxCreate_v2(flags: u32, device: i32) with_state 3020, cuCtxCreate 2000 -> ContextHandle;
        fn cuCtxCreate_v3(affinities: In<u8>, count: i32, flags: u32, device: i32) with_state 11040 -> ContextHandle
            => |state| match affinities.is_null() || count == 0 {
                true => context::cuCtxCreate_v2(state, flags, device),
                false => Err(Error::NOT_SUPPORTED),
            };
        // A CUctxCreateParams has a pointer to affinities, their number, and a pointer for sharing the GPU with
        // graphics. gdremu supports neither, so both pointers must be NULL.
        fn cuCtxCreate_v4(parameters: In<[usize; 3]>, flags: u32, device: i32) with_state 12050 -> ContextHandle
            => |state| match parameters.is_null() || matches!(parameters.get()?, [0, _, 0]) {
                true => context::cuCtxCreate_v2(state, flags, device),
                false => Err(Error::NOT_SUPPORTED),
            };
        fn cuCtxDestroy_v2(context: ContextHandle) initialized 4000, cuCtxDestroy 2000;
        fn cuCtxPushCurrent_v2(context: ContextHandle) with_state 4000, cuCtxPushCurrent 2000
            => |state| state.contexts.get(context).and_then(|_| STACK.with(|stack| stack.push(context)));
        fn cuCtxPopCurrent_v2(handle: Out<ContextHandle>) with_state 4000, cuCtxPopCurrent 2000 => |_| {
                handle.set_if_wanted(STACK.with(|stack| stack.pop())?);
                Ok(())
            };
        fn cuCtxSetCurrent(context: ContextHandle) with_state 4000;
        fn cuCtxGetCurrent() with_state 4000 -> ContextHandle
            => |_| Ok(STACK.with(|stack| stack.top()).unwrap_or(0));
        fn cuCtxGetDevice() in_context 2000 -> i32 => |_, current| Ok(gpus::ordinal(current.gpu));
        fn cuCtxGetDevice_v2(context: ContextHandle) with_state 13000 -> i32
            => |state| Ok(gpus::ordinal(context::live(state, context)?.gpu));
        fn cuCtxSetFlags(flags: u32) in_context 12010;
        fn cuCtxGetFlags() in_context 7000 -> u32 => |state, current| Ok(state.contexts.get(current.context)?.flags);
        fn cuCtxGetId(context: ContextHandle, id: Out<u64>) with_state 12000
            => |state| id.set(context::live(state, context)?.id);
        fn cuCtxGetApiVersion(context: ContextHandle, version: Out<u32>) with_state 3020
            => |state| context::live(state, context).and_then(|_| version.set(context::API_VERSION));
        fn cuCtxGetExecAffinity(parameter: Out<[u32; 2]>, kind: u32) in_context 11040
            => |_, current| parameter.fill(|| context::exec_affinity(current.gpu, kind));
        fn cuCtxSynchronize() initialized 2000 => || context::cuCtxSynchronize_v2(0);
        fn cuCtxSynchronize_v2(context: ContextHandle) initialized 13000;
    }
    buffer {
        fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) in_context 3020 => |_, current| {
                free.set(gpus::free_bytes(current.gpu) as usize)?;
                total.set(GPU_BYTES as usize)
            };
        fn cuMemAlloc_v2(size: usize) in_context 3020 -> u64;
        fn cuMemFree_v2(address: u64) initialized 3020;
        fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) in_context 3020 => |state, _| {
                let range = buffer::range(state, address)?;
                base.set_if_wanted(range.0);
                size.set_if_wanted(range.1);
                Ok(())
            };
        fn cuMemAllocAsync(size: usize, stream: StreamHandle) initialized 11020 -> u64;
        fn cuMemFreeAsync(address: u64, stream: StreamHandle) initialized 11020;
    }
    host {
        fn cuMemAllocHost_v2(size: usize) in_context 3020 -> usize
            => |state, current| host::cuMemHostAlloc(state, current, size, 0);
        fn cuMemHostAlloc(size: usize, flags: u32) in_context 2020 -> usize;
        fn cuMemFreeHost(address: usize) initialized 2000;
        fn cuMemAllocManaged(size: usize, flags: u32) in_context 6000 -> u64;
        fn cuMemHostRegister_v2(address: usize, size: usize, flags: u32) in_context 6050, cuMemHostRegister 4000;
        fn cuMemHostUnregister(address: usize) initialized 4000;
        fn cuMemHostGetDevicePointer_v2(address: usize, flags: u32) in_context 3020 -> u64
            => |state, _| host::device_pointer(state, address, flags);
        fn cuMemHostGetFlags(address: usize) in_context 2030 -> u32
            => |state, _| Ok(valid(host::find(state, address))?.flags);
    }
    copy {
        fn cuMemcpy(to: u64, from: u64, size: usize) initialized 4000 => || copy(Any(to), Any(from), size, None);
        fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: StreamHandle) initialized 4000
            => || copy(Any(to), Any(from), size, Some(stream));
        fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) initialized 3020
            => || copy(Device(to), Any(from), size, None);
        fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle) initialized 3020
            => || copy(Device(to), Any(from), size, Some(stream));
        fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) initialized 3020
            => || copy(Any(to), Device(from), size, None);
        fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle) initialized 3020
            => || copy(Any(to), Device(from), size, Some(stream));
        fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) initialized 3020
            => || copy(Device(to), Device(from), size, None);
        fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: StreamHandle) initialized 3020
            => || copy(Device(to), Device(from), size, Some(stream));
        // The contexts are not needed, because the addresses determine the GPUs.
        fn cuMemcpyPeer(to: u64, _to_context: ContextHandle, from: u64, _from_context: ContextHandle, size: usize) initialized 4000
            => || copy(Device(to), Device(from), size, None);
        fn cuMemcpyPeerAsync(to: u64, _to_context: ContextHandle, from: u64, _from_context: ContextHandle, size: usize,
               stream: StreamHandle)
            initialized 4000 => || copy(Device(to), Device(from), size, Some(stream));
        fn cuMemsetD8_v2(address: u64, value: u8, count: usize) initialized 3020
            => || fill([value], address, count, None);
        fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: StreamHandle) initialized 3020
            => || fill([value], address, count, Some(stream));
        fn cuMemsetD32_v2(address: u64, value: u32, count: usize) initialized 3020
            => || fill(value.to_ne_bytes(), address, count, None);
    }
    pointer {
        fn cuPointerGetAttribute(data: Out<u8>, attribute: u32, address: u64) with_state 4000;
        fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<Out<u8>>, address: u64) with_state 7000;
        // Supports only the attribute PREFERRED_LOCATION, which is never set, because gdremu lacks cuMemAdvise.
        fn cuMemRangeGetAttribute(size: usize, attribute: u32, address: u64, count: usize) with_state 8000 -> i32
            => |state| {
                pointer::check_managed(state, address, count)?;
                ensure(size == 4, Error::INVALID_VALUE)?;
                ensure(attribute == 2, Error::NOT_SUPPORTED)?;
                Ok(pointer::NO_DEVICE)
            };
        fn cuPointerSetAttribute(value: In<u32>, attribute: u32, address: u64) with_state 6000;
    }
    vmm {
        // CUDA requires that `prop` is not NULL, but does not check the properties.
        fn cuMemGetAllocationGranularity(prop: In<AllocationProp>, option: u32) initialized 10020 -> usize
            => || match prop.get().map(|_| option)? {
                0 | 1 => Ok(BLOCK as usize),
                _ => Err(Error::INVALID_VALUE),
            };
        fn cuMemCreate(size: usize, prop: In<AllocationProp>, flags: u64) initialized 10020 -> u64;
        fn cuMemRelease(handle: u64) initialized 10020 => || gpus::change(|memory| memory.release(ObjectId(handle)));
        fn cuMemRetainAllocationHandle(address: *mut c_void) initialized 11000 -> u64
            => || Ok(gpus::change(|memory| memory.retain_at(address.addr() as u64))?.0);
        fn cuMemGetAllocationPropertiesFromHandle(handle: u64) initialized 10020 -> AllocationProp
            => || vmm::properties(handle);
        fn cuMemAddressReserve(size: usize, alignment: usize, hint: u64, flags: u64) initialized 10020 -> u64 => || {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                gpus::change(|memory| memory.reserve(size as u64, alignment as u64, hint))
            };
        fn cuMemAddressFree(address: u64, size: usize) initialized 10020
            => || gpus::change(|memory| memory.unreserve(address, size as u64));
        fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) initialized 10020;
        fn cuMemUnmap(address: u64, size: usize) initialized 10020
            => || gpus::take_away(|memory| memory.unmap(address, size as u64));
        fn cuMemSetAccess(address: u64, size: usize, access: In<AccessDesc>, count: usize) initialized 10020;
    }
    export {
        fn cuMemGetHandleForAddressRange(address: u64, size: usize, kind: u32, flags: u64) in_context 11070 -> c_int
            => |_, _| export::range(address, size, kind, flags);
    }
    ipc {
        fn cuIpcGetMemHandle(address: u64) in_context 4010 -> IpcHandle => |state, _| ipc::handle_of(state, address);
        fn cuIpcOpenMemHandle_v2(handle: IpcHandle, flags: u32) in_context 11000 -> u64
            => |state, _| ipc::open(state, handle, flags);
        fn cuIpcCloseMemHandle(address: u64) initialized 4010;
    }
    stream {
        fn cuStreamCreate(flags: u32) in_context 2000 -> StreamHandle;
        // The priority is ignored. It is only a hint with NVIDIA's driver, too.
        fn cuStreamCreateWithPriority(flags: u32, _priority: i32) in_context 5050 -> StreamHandle
            => |state, current| stream::cuStreamCreate(state, current, flags);
        fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) in_context 5050 => |_, _| {
                least.set_if_wanted(0);
                greatest.set_if_wanted(-5);
                Ok(())
            };
        fn cuStreamWaitEvent(stream: StreamHandle, event: EventHandle, flags: u32) initialized 3020;
        fn cuStreamDestroy_v2(stream: StreamHandle) with_state 4000, cuStreamDestroy 2000
            => |state| state.streams.remove(stream).map(drop);
        fn cuStreamSynchronize(stream: StreamHandle) initialized 2000;
        fn cuStreamQuery(stream: StreamHandle) initialized 2000;
        fn cuLaunchHostFunc(stream: StreamHandle, function: Option<extern "C" fn(usize)>, data: usize)
            initialized 10000 => || stream::run(stream, function.map(|function| move || function(data)));
        fn cuStreamAddCallback(stream: StreamHandle, callback: Option<extern "C" fn(StreamHandle, i32, usize)>,
               data: usize, flags: u32)
            initialized 5000 => || {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                stream::run(stream, callback.map(|callback| move || callback(stream, 0, data)))
            };
        fn cuEventCreate(flags: u32) in_context 2000 -> EventHandle;
        fn cuEventDestroy_v2(event: EventHandle) with_state 4000, cuEventDestroy 2000
            => |state| state.events.remove(event).map(drop);
        fn cuEventRecord(event: EventHandle, stream: StreamHandle) initialized 2000;
        // Flags other than 0 are for events in graphs.
        fn cuEventRecordWithFlags(event: EventHandle, stream: StreamHandle, flags: u32) initialized 11010 => || {
                ensure(flags == 0, Error::INVALID_VALUE)?;
                stream::cuEventRecord(event, stream)
            };
        fn cuEventQuery(event: EventHandle) with_state 2000;
        fn cuEventSynchronize(event: EventHandle) initialized 2000;
        fn cuEventElapsedTime_v2(start: EventHandle, end: EventHandle) with_state 12080, cuEventElapsedTime 2000 -> f32
            => |state| stream::elapsed(state, start, end);
    }
    capture {
        fn cuStreamBeginCapture_v2(stream: StreamHandle, mode: u32) in_context 10010
            => |state, _| capture::begin(state, stream, mode);
        fn cuStreamEndCapture(stream: StreamHandle, graph: Out<usize>) in_context 10000
            => |state, _| capture::end(state, stream, graph);
        fn cuStreamIsCapturing(stream: StreamHandle, status: Out<u32>) in_context 10000
            => |state, _| status.set(capture::status(state, stream)?);
        fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) without_init 10010;
    }
    module {
        fn cuModuleLoadData(image: In<u8>) initialized 2000 -> ModuleHandle
            => || module::load("cuModuleLoadData", image);
        // The options are ignored. They are for the PTX compiler, which gdremu does not have.
        fn cuModuleLoadDataEx(image: In<u8>, _count: u32, _options: In<u32>, _values: In<usize>) initialized 2010
            -> ModuleHandle => || module::load("cuModuleLoadDataEx", image);
        fn cuModuleUnload(module: ModuleHandle) initialized 2000;
        fn cuModuleLoadFatBinary(image: In<u8>) initialized 2000 -> ModuleHandle
            => || module::load("cuModuleLoadFatBinary", image);
        fn cuModuleGetFunction(module: ModuleHandle, name: In<c_char>) in_context 2000 -> FunctionHandle => |state, _| {
                let function = state.modules.get(module)?.functions.get(name.text()?);
                function.copied().ok_or(Error::NOT_FOUND)
            };
        fn cuModuleGetGlobal_v2(address: Out<u64>, size: Out<usize>, module: ModuleHandle, name: In<c_char>)
            in_context 3020 => |state, _| {
                let variable = state.modules.get(module)?.variables.get(name.text()?).ok_or(Error::NOT_FOUND)?;
                address.set_if_wanted(variable.0);
                size.set_if_wanted(variable.1);
                Ok(())
            };
    }
    kernel {
        fn cuFuncGetAttribute(attribute: i32, function: FunctionHandle) in_context 2020 -> i32;
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(function: FunctionHandle, threads: i32, shared_bytes: usize)
            in_context 6050 -> i32 => |state, _| kernel::active_blocks(state, function, threads, shared_bytes);
        fn cuOccupancyMaxPotentialBlockSize(blocks: Out<i32>, threads: Out<i32>, function: FunctionHandle,
               shared_of: SharedBytes, shared_bytes: usize, limit: i32)
            initialized 6050 => || {
                let best = kernel::best_block(function, shared_of, shared_bytes, limit)?;
                blocks.set(best.0)?;
                threads.set(best.1)
            };
        fn cuLaunchKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, x: u32, y: u32, z: u32,
               shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>, extra: In<In<u8>>)
            initialized 4000 => || {
                let grid = [grid_x, grid_y, grid_z];
                let request = Request { grid, block: [x, y, z], shared_bytes, stream, cooperative: false };
                kernel::launch(function, request, parameters, extra)
            };
        fn cuLaunchCooperativeKernel(function: FunctionHandle, grid_x: u32, grid_y: u32, grid_z: u32, x: u32, y: u32,
               z: u32, shared_bytes: u32, stream: StreamHandle, parameters: In<In<u8>>)
            initialized 9000 => || {
                let grid = [grid_x, grid_y, grid_z];
                let request = Request { grid, block: [x, y, z], shared_bytes, stream, cooperative: true };
                kernel::launch(function, request, parameters, In::null())
            };
    }
}
