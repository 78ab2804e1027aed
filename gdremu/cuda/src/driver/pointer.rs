//! Pointer attributes: what CUDA reports about the memory at an address.
#![forbid(unsafe_code)]

use gdremu_core::gpu::address_space::{Access, Place};

use super::state::{CTX_SYNC_MEMOPS, HostRange, Kind, State, StreamHandle};
use super::work::{Turn, When};
use super::{host, ipc};
use crate::args::{In, Out};
use crate::error::{Error, Result, ensure, valid};
use crate::gpus;
use gdremu_core::cuda::types::P2pTokens;

/// Values of CUmemorytype.
const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// Values of CUpointer_attribute that are used in more than one place.
const DEVICE_POINTER: u32 = 3;
const P2P_TOKENS: u32 = 5;
const SYNC_MEMOPS: u32 = 6;
const DEVICE_ORDINAL: u32 = 9;

/// Attributes whose values have 4 bytes. The values of others have 8 bytes.
const SHORT: [u32; 7] = [2, SYNC_MEMOPS, 8, DEVICE_ORDINAL, 10, 15, 16];

/// The value of CU_DEVICE_INVALID.
pub(super) const NO_DEVICE: i32 = -2;

/// Memory that CUDA knows: its own, and host memory that was registered.
#[derive(Clone, Copy)]
enum Known<'a> {
    Device(Place),
    Host(&'a HostRange),
}

use Known::{Device, Host};

impl Known<'_> {
    fn id(&self) -> u64 {
        match self {
            Device(place) => place.id,
            Host(range) => range.id,
        }
    }
}

fn find(state: &State, address: u64) -> Result<Known<'_>> {
    match gpus::place(address) {
        Some(place) => Ok(Device(place)),
        None => Ok(Host(valid(host::find(state, address as usize))?)),
    }
}

/// Returns whether a copy or fill must be done before its call returns. A call with a stream is asynchronous. Other
/// calls may return earlier only if all memory is device or managed memory, and SYNC_MEMOPS is set neither for the
/// memory nor for the context.
pub(super) fn when(turn: &Turn, stream: Option<StreamHandle>, addresses: &[u64]) -> When {
    let state = &turn.state;
    if stream.is_some() {
        return When::InOrder;
    }
    if let Ok(context) = state.contexts.get(turn.current.context)
        && context.flags & CTX_SYNC_MEMOPS != 0
    {
        return When::Now;
    }
    for address in addresses {
        match find(state, *address) {
            Ok(Host(range)) if range.kind != Kind::Managed => return When::Now,
            Ok(memory) if !state.sync_memops.contains(&memory.id()) => {}
            _ => return When::Now,
        }
    }
    When::InOrder
}

fn value(state: &State, attribute: u32, address: u64) -> Result<u64> {
    let memory = find(state, address)?;
    let id = memory.id();
    Ok(match (attribute, memory) {
        (DEVICE_POINTER, _) => state.current().map(|_| address)?,
        (SYNC_MEMOPS, _) => state.sync_memops.contains(&id).into(),
        (7, _) => id, // BUFFER_ID
        (_, Device(place)) => return value_of_device(state, attribute, address, &place),
        (1, Host(range)) => range.context as u64,                   // CONTEXT
        (2, Host(HostRange { kind: Kind::Managed, .. })) => DEVICE, // MEMORY_TYPE
        (2, _) => HOST,
        (4, _) => address,                                        // HOST_POINTER
        (8, Host(range)) => (range.kind == Kind::Managed).into(), // IS_MANAGED
        (DEVICE_ORDINAL, Host(range)) => gpus::ordinal(range.gpu) as u64,
        // IS_LEGACY_CUDA_IPC_CAPABLE, ALLOWED_HANDLE_TYPES, IS_GPU_DIRECT_RDMA_CAPABLE and MEMPOOL_HANDLE
        (10 | 14 | 15 | 17, _) => 0,
        (11, Host(range)) => range.start as u64, // RANGE_START_ADDR
        (12, Host(range)) => range.len as u64,   // RANGE_SIZE
        (16, _) => 3,                            // ACCESS_FLAGS
        _ => return Err(Error::INVALID_VALUE),
    })
}

fn value_of_device(state: &State, attribute: u32, address: u64, place: &Place) -> Result<u64> {
    let allocation = state.allocations.get(&place.base);
    Ok(match (attribute, allocation) {
        (1, Some(allocation)) => allocation.context.unwrap_or(0) as u64, // CONTEXT
        (2, _) => DEVICE,                                                // MEMORY_TYPE
        (DEVICE_ORDINAL, _) => gpus::ordinal(place.gpu) as u64,
        (10, allocation) => ipc::is_capable(allocation).into(), // IS_LEGACY_CUDA_IPC_CAPABLE
        (11, _) => place.base,                                  // RANGE_START_ADDR
        (12, _) => place.len,                                   // RANGE_SIZE
        (15, _) => place.rdma.into(),                           // IS_GPU_DIRECT_RDMA_CAPABLE
        (16, _) => access(state, address, place),               // ACCESS_FLAGS
        (17, Some(allocation)) => allocation.pool.unwrap_or(0) as u64, // MEMPOOL_HANDLE
        // IS_MANAGED and ALLOWED_HANDLE_TYPES, and for memory of cuMemMap also CONTEXT and MEMPOOL_HANDLE
        (1 | 8 | 14 | 17, _) => 0,
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// Returns the access that the GPU of the current context has to device memory.
fn access(state: &State, address: u64, place: &Place) -> u64 {
    if !place.vmm {
        return Access::ReadWrite as u64;
    }
    let Ok(current) = state.current() else {
        return Access::None as u64;
    };
    let access = gpus::with(|gpu| gpu.memory().access(address, current.gpu));
    access.unwrap_or_default() as u64
}

fn store(data: Out<u8>, attribute: u32, value: u64) -> Result {
    if SHORT.contains(&attribute) { data.of().set(value as u32) } else { data.of().set(value) }
}

pub(super) fn cuPointerGetAttribute(state: &mut State, data: Out<u8>, attribute: u32, address: u64) -> Result {
    data.check()?;
    if attribute != P2P_TOKENS {
        return store(data, attribute, value(state, attribute, address)?);
    }
    state.sync_memops.insert(valid(gpus::place(address))?.id);
    let tokens = gpus::with(|gpu| gpu.tokens());
    data.of().set(P2pTokens { token: tokens.0, va_space: tokens.1 })
}

/// Stores attributes. An attribute that the memory does not have is stored as 0, or as CU_DEVICE_INVALID if it is the
/// device ordinal. Memory that CUDA does not know has no attributes. P2P_TOKENS is refused.
pub(super) fn cuPointerGetAttributes(
    state: &mut State,
    count: u32,
    attributes: In<u32>,
    data: In<Out<u8>>,
    address: u64,
) -> Result {
    ensure(count != 0, Error::INVALID_VALUE)?;
    for index in 0..count as usize {
        let attribute = attributes.at(index)?;
        let nothing = match attribute {
            DEVICE_ORDINAL => NO_DEVICE as u64,
            P2P_TOKENS | 0 | 18.. => return Err(Error::INVALID_VALUE),
            _ => 0,
        };
        store(data.at(index)?, attribute, value(state, attribute, address).unwrap_or(nothing))?;
    }
    Ok(())
}

pub(super) fn check_managed(state: &State, address: u64, len: usize) -> Result {
    let range = valid(host::find(state, address as usize))?;
    let is_inside = len > 0 && len <= range.start + range.len - address as usize;
    ensure(range.kind == Kind::Managed && is_inside, Error::INVALID_VALUE)
}

/// Sets SYNC_MEMOPS, but not for VMM (virtual memory management) memory. No other attribute can be set.
pub(super) fn cuPointerSetAttribute(state: &mut State, value: In<u32>, attribute: u32, address: u64) -> Result {
    let value = value.get()?;
    let memory = find(state, address)?;
    ensure(!matches!(memory, Device(Place { vmm: true, .. })), Error::NOT_SUPPORTED)?;
    ensure(attribute == SYNC_MEMOPS, Error::INVALID_VALUE)?;
    let id = memory.id();
    match value {
        0 => state.sync_memops.remove(&id),
        _ => state.sync_memops.insert(id),
    };
    Ok(())
}
