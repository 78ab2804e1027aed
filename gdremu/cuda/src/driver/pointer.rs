//! Facts about an address.

use gdremu_core::gpu::memory::{Access, Place};

use super::state::{CTX_SYNC_MEMOPS, Current, HostRange, Kind, State, StreamHandle};
use super::work::When;
use super::{host, ipc, vmm};
use crate::args::{In, Untyped};
use crate::error::{Error, Result, ensure};
use crate::gpus;
use gdremu_core::cuda::types::{HANDLE_POSIX_FD, P2pTokens};

/// CUmemorytype.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Numbers of CUpointer_attribute that are used in more than one place.
const DEVICE_POINTER: u32 = 3;
const P2P_TOKENS: u32 = 5;
const SYNC_MEMOPS: u32 = 6;
const DEVICE_ORDINAL: u32 = 9;

/// CU_DEVICE_INVALID.
const NO_DEVICE: i32 = -2;

/// Memory that CUDA knows.
enum Known<'a> {
    Device(Place),
    Host(usize, &'a HostRange),
}

impl Known<'_> {
    fn id(&self) -> u64 {
        match self {
            Known::Device(place) => place.id,
            Known::Host(_, range) => range.id,
        }
    }
}

fn find(state: &State, address: u64) -> Option<Known<'_>> {
    match gpus::with(|gpu| gpu.memory().place(address)) {
        Some(place) => Some(Known::Device(place)),
        None => host::find(state, address as usize).map(|(start, range)| Known::Host(start, range)),
    }
}

/// When a call's work on this memory is done. An asynchronous call has a stream. Others wait for work on GPU memory only
/// with SYNC_MEMOPS, of the memory or of the context.
pub(super) fn when(state: &State, current: Current, stream: Option<StreamHandle>, addresses: &[u64]) -> When {
    if stream.is_some() {
        return When::InOrder;
    }
    if let Some(context) = state.contexts.find(current.context)
        && context.flags & CTX_SYNC_MEMOPS != 0
    {
        return When::Now;
    }
    for address in addresses {
        match find(state, *address) {
            None => return When::Now,
            Some(Known::Host(_, range)) if range.kind != Kind::Managed => return When::Now,
            Some(memory) if state.sync_memops.contains(&memory.id()) => return When::Now,
            Some(_) => {}
        }
    }
    When::InOrder
}

/// Stores the value of an attribute that this kind of memory has.
fn get(state: &State, data: Untyped, attribute: u32, address: u64) -> Result {
    data.check()?;
    let memory = find(state, address).ok_or(Error::INVALID_VALUE)?;
    match (attribute, memory) {
        (DEVICE_POINTER, _) => state.current().and_then(|_| data.of().set(address)),
        (SYNC_MEMOPS, memory) => data.of().set(u32::from(state.sync_memops.contains(&memory.id()))),
        (_, Known::Device(place)) => get_device(state, data, attribute, address, &place),
        (_, Known::Host(start, range)) => get_host(data, attribute, address, start, range),
    }
}

fn get_device(state: &State, data: Untyped, attribute: u32, address: u64, place: &Place) -> Result {
    let allocation = state.allocations.get(&place.base);
    match attribute {
        1 => data.of().set(allocation.and_then(|allocation| allocation.context).unwrap_or(0)), // CONTEXT
        2 => data.of().set(DEVICE),                                                            // MEMORY_TYPE
        P2P_TOKENS => data.of().set(p2p_tokens()),
        7 => data.of().set(place.id), // BUFFER_ID
        8 => data.of().set(0u32),     // IS_MANAGED
        DEVICE_ORDINAL => data.of().set(gpus::ordinal(place.gpu)),
        // IS_LEGACY_CUDA_IPC_CAPABLE
        10 => data.of().set(i32::from(ipc::is_capable(allocation))),
        11 => data.of().set(place.base),                    // RANGE_START_ADDR
        12 => data.of().set(place.len as usize),            // RANGE_SIZE
        13 => data.of().set(1i32),                          // MAPPED
        14 => data.of().set(handle_types(place)),           // ALLOWED_HANDLE_TYPES
        15 => data.of().set(i32::from(place.rdma)),         // IS_GPU_DIRECT_RDMA_CAPABLE
        16 => data.of().set(access(state, address, place)), // ACCESS_FLAGS
        17 => data.of().set(allocation.and_then(|allocation| allocation.pool).unwrap_or(0)), // MEMPOOL_HANDLE
        18 => data.of().set(place.len as usize),            // MAPPING_SIZE
        19 => data.of().set(place.base),                    // MAPPING_BASE_ADDR
        20 => data.of().set(place.object.0),                // MEMORY_BLOCK_ID
        21 => data.of().set(0i32),                          // IS_HW_DECOMPRESS_CAPABLE
        _ => Err(Error::INVALID_VALUE),
    }
}

fn get_host(data: Untyped, attribute: u32, address: u64, start: usize, range: &HostRange) -> Result {
    let managed = range.kind == Kind::Managed;
    match attribute {
        1 => data.of().set(range.context),                       // CONTEXT
        2 => data.of().set(if managed { DEVICE } else { HOST }), // MEMORY_TYPE
        4 => data.of().set(address),                             // HOST_POINTER
        P2P_TOKENS if managed => data.of().set(p2p_tokens()),
        7 => data.of().set(range.id),           // BUFFER_ID
        8 => data.of().set(u32::from(managed)), // IS_MANAGED
        DEVICE_ORDINAL => data.of().set(gpus::ordinal(range.gpu)),
        10 | 15 | 21 => data.of().set(0i32), // no IPC, GPUDirect RDMA, decompression
        11 | 19 => data.of().set(start),     // RANGE_START_ADDR, MAPPING_BASE_ADDR
        12 | 18 => data.of().set(range.len), // RANGE_SIZE, MAPPING_SIZE
        13 => data.of().set(1i32),           // MAPPED
        14 | 17 => data.of().set(0u64),      // ALLOWED_HANDLE_TYPES, MEMPOOL_HANDLE
        16 => data.of().set(3u32),           // ACCESS_FLAGS
        20 => data.of().set(range.id),       // MEMORY_BLOCK_ID
        _ => Err(Error::INVALID_VALUE),
    }
}

fn p2p_tokens() -> P2pTokens {
    let (token, va_space) = gpus::with(|gpu| gpu.tokens());
    P2pTokens { token, va_space }
}

fn handle_types(place: &Place) -> u64 {
    match gpus::with(|gpu| gpu.memory().physical_object(place.object).map(|object| object.exportable)) {
        Some(true) => u64::from(HANDLE_POSIX_FD),
        _ => 0,
    }
}

/// The access of the current context's GPU to the memory.
fn access(state: &State, address: u64, place: &Place) -> u32 {
    let access = match state.current() {
        _ if !place.vmm => Ok(Access::ReadWrite),
        Ok(current) => gpus::with(|gpu| gpu.memory().access(address, current.gpu)),
        Err(_) => Ok(Access::None),
    };
    vmm::access_flags(access.unwrap_or_default()) as u32
}

pub(super) fn cuPointerGetAttribute(state: &mut State, data: Untyped, attribute: u32, address: u64) -> Result {
    get(state, data, attribute, address)?;
    if attribute == P2P_TOKENS {
        let id = find(state, address).map(|known| known.id());
        state.sync_memops.extend(id);
    }
    Ok(())
}

/// Attributes that the memory does not have, and all those of memory that CUDA does not know, read
/// as 0. There are no tokens here.
pub(super) fn get_all(state: &State, count: u32, attributes: In<u32>, data: In<Untyped>, address: u64) -> Result {
    ensure(count != 0, Error::INVALID_VALUE)?;
    (0..count as usize).try_for_each(|index| {
        let attribute = attributes.at(index)?;
        let data = data.at(index)?;
        ensure(attribute != P2P_TOKENS, Error::INVALID_VALUE)?;
        get(state, data, attribute, address).or_else(|_| set_nothing(data, attribute))
    })
}

/// An attribute of managed memory; the advice that it reports cannot be set here.
pub(super) fn cuMemRangeGetAttribute(
    state: &State,
    data: Untyped,
    size: usize,
    attribute: u32,
    address: u64,
    count: usize,
) -> Result {
    data.check()?;
    let (start, range) = host::find(state, address as usize).ok_or(Error::INVALID_VALUE)?;
    let inside = count > 0 && count <= start + range.len - address as usize;
    ensure(range.kind == Kind::Managed && inside, Error::INVALID_VALUE)?;
    let numbers = size / size_of::<i32>();
    match attribute {
        // READ_MOSTLY, and the types of PREFERRED_LOCATION and LAST_PREFETCH_LOCATION
        1 | 5 | 7 if size == 4 => data.of().set(0i32),
        // PREFERRED_LOCATION, LAST_PREFETCH_LOCATION, and their ids
        2 | 4 | 6 | 8 if size == 4 => data.of().set(NO_DEVICE),
        // ACCESSED_BY: a list
        3 if size > 0 && size.is_multiple_of(size_of::<i32>()) => {
            data.of().set_all(std::iter::repeat_n(NO_DEVICE, numbers))
        }
        _ => Err(Error::INVALID_VALUE),
    }
}

/// Stores what an attribute is for memory that CUDA does not know.
fn set_nothing(data: Untyped, attribute: u32) -> Result {
    match attribute {
        DEVICE_ORDINAL => data.of().set(NO_DEVICE),
        2 | SYNC_MEMOPS | 8 | 10 | 13 | 15 | 16 | 21 => data.of().set(0u32),
        1..=20 => data.of().set(0u64),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// SYNC_MEMOPS is all that can be set, and not of VMM memory.
pub(super) fn cuPointerSetAttribute(state: &mut State, value: In<u32>, attribute: u32, address: u64) -> Result {
    let value = value.get()?;
    let memory = find(state, address).ok_or(Error::INVALID_VALUE)?;
    ensure(!matches!(memory, Known::Device(Place { vmm: true, .. })), Error::NOT_SUPPORTED)?;
    ensure(attribute == SYNC_MEMOPS, Error::INVALID_VALUE)?;
    let id = memory.id();
    match value {
        0 => state.sync_memops.remove(&id),
        _ => state.sync_memops.insert(id),
    };
    Ok(())
}
