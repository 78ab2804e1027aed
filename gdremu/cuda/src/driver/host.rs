//! Host memory that CUDA allocates or registers, and managed memory, which is host memory here. The
//! CPU may access it, and gdrdrv cannot pin it, as on real GPUs.
//!
//! Each allocation is a mapping of its own, so that tools do not mistake it for the program's heap. Raw system calls
//! map and unmap it, because tools can replace mmap and munmap by functions that may call CUDA. These would then wait
//! forever for the lock that this library holds.

use std::ptr;

use gdremu_core::gpu::page_size;

use super::state::{self, ContextHandle, Current, HostRange, Kind, Locked, State};
use super::work;
use crate::error::{Error, Result, ensure, valid};
use crate::gpus;

/// The flags of cuMemHostAlloc: portable, mapped, write-combined.
const ALLOC_FLAGS: u32 = 0x7;

/// The flags of cuMemHostRegister: portable, mapped, read-only. The flag for I/O memory is not supported.
const REGISTER_FLAGS: u32 = 0x3 | READ_ONLY;
pub(super) const READ_ONLY: u32 = 0x8;

pub(super) fn find(state: &State, address: usize) -> Option<&HostRange> {
    let range = state.host.range(..=address).next_back()?.1;
    if address - range.start < range.len { Some(range) } else { None }
}

/// Maps new pages, which are zero.
fn map(len: usize) -> Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let anywhere = ptr::null_mut::<u8>();
    // SAFETY: no address is requested, so nothing is replaced.
    let address = unsafe { libc::syscall(libc::SYS_mmap, anywhere, len, protection, flags, -1, 0_i64) };
    ensure(address != -1, Error::OUT_OF_MEMORY)?;
    Ok(address as usize)
}

fn alloc(state: &mut State, current: Current, len: usize, kind: Kind, flags: u32) -> Result<usize> {
    ensure(len != 0, Error::INVALID_VALUE)?;
    let address = map(len)?;
    insert(state, current, address, len, kind, flags);
    Ok(address)
}

fn insert(state: &mut State, current: Current, address: usize, len: usize, kind: Kind, flags: u32) {
    let id = (1 << 63) | state.next_id();
    let Current { context, gpu } = current;
    gpus::memory_changed();
    state.host.insert(address, HostRange { start: address, len, kind, flags, context, gpu, id });
    if kind == Kind::Managed {
        state.sync_memops.insert(id);
    }
}

/// Frees memory of `kind` at `address`, after its context's work is done. Registered memory is only unregistered.
pub(super) fn release(state: Locked, address: usize, kind: Kind) -> Result {
    let range = valid(state.host.get(&address))?;
    ensure(range.kind == kind, Error::INVALID_VALUE)?;
    let owner = range.context;
    let mut state = work::finish(state, Some(owner))?;
    free(&mut state, address)
}

fn free(state: &mut State, address: usize) -> Result {
    let range = valid(state.host.remove(&address))?;
    gpus::memory_changed();
    if range.kind != Kind::Registered {
        // SAFETY: `map` made this range with this length, and the range has just left the table.
        unsafe { libc::syscall(libc::SYS_munmap, address, range.len) };
    }
    Ok(())
}

pub(super) fn free_all_of(state: &mut State, context: ContextHandle) -> Result {
    let addresses: Vec<usize> = state.host.keys().copied().collect();
    for address in addresses {
        if state.host[&address].context == context {
            free(state, address)?;
        }
    }
    Ok(())
}

pub(super) fn cuMemHostAlloc(state: &mut State, current: Current, len: usize, flags: u32) -> Result<usize> {
    ensure(flags & !ALLOC_FLAGS == 0, Error::INVALID_VALUE)?;
    if len == 0 {
        return Ok(0);
    }
    alloc(state, current, len, Kind::Allocated, flags)
}

pub(super) fn cuMemFreeHost(address: usize) -> Result {
    if address == 0 {
        return Ok(());
    }
    release(state::lock(), address, Kind::Allocated)
}

pub(super) fn cuMemAllocManaged(state: &mut State, current: Current, len: usize, flags: u32) -> Result<u64> {
    // Exactly one of CU_MEM_ATTACH_GLOBAL and CU_MEM_ATTACH_HOST must be set.
    ensure(matches!(flags, 1 | 2), Error::INVALID_VALUE)?;
    alloc(state, current, len, Kind::Managed, flags).map(|address| address as u64)
}

pub(super) fn cuMemHostRegister_v2(
    state: &mut State,
    current: Current,
    address: usize,
    size: usize,
    flags: u32,
) -> Result {
    let end = valid(address.checked_add(size))?;
    ensure(address != 0 && size != 0 && flags & !REGISTER_FLAGS == 0, Error::INVALID_VALUE)?;
    if let Some((_, below)) = state.host.range(..end).next_back()
        && below.start + below.len > address
    {
        return Err(match below.kind {
            Kind::Registered => Error::HOST_MEMORY_ALREADY_REGISTERED,
            _ => Error::INVALID_VALUE,
        });
    }
    ensure(populate(address, size, flags & READ_ONLY == 0), Error::INVALID_VALUE)?;
    insert(state, current, address, size, Kind::Registered, flags);
    Ok(())
}

/// Brings the program's memory into RAM, as CUDA does. Returns false if the program cannot access all of it.
fn populate(address: usize, len: usize, write: bool) -> bool {
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let start = address - address % page_size();
    // SAFETY: the call changes neither mappings nor their contents.
    let result = unsafe { libc::syscall(libc::SYS_madvise, start, address + len - start, advice) };
    // Linux before 5.14 does not know `advice`, and refuses it even for an empty range. Then this returns true.
    // SAFETY: the range is empty, so the call accesses no memory.
    result == 0 || unsafe { libc::syscall(libc::SYS_madvise, 0, 0, advice) } != 0
}

pub(super) fn cuMemHostUnregister(address: usize) -> Result {
    let state = state::lock();
    let is_known = address == 0 || find(&state, address).is_some();
    ensure(is_known, Error::HOST_MEMORY_NOT_REGISTERED)?;
    release(state, address, Kind::Registered)
}

/// Returns the address at which GPUs reach host memory. It is the CPU's address, as with unified addressing.
pub(super) fn device_pointer(state: &State, address: usize, flags: u32) -> Result<u64> {
    let range = valid(find(state, address))?;
    ensure(flags == 0 && range.kind != Kind::Managed, Error::INVALID_VALUE)?;
    Ok(address as u64)
}
