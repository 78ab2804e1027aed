//! Virtual memory management: cuMemCreate, cuMemAddressReserve, cuMemMap and related functions.

use std::ffi::c_void;

use gdremu_core::gpu::memory::Access;
use gdremu_core::gpu::physical::{BLOCK, ObjectId};

use crate::args::{In, Out};
use crate::error::{Error, Result};
use crate::gpus;
use gdremu_core::cuda::types::{
    ALLOCATION_PINNED, AccessDesc, AllocationProp, HANDLE_POSIX_FD, LOCATION_DEVICE, Location,
};

/// The GPU of a location.
pub(super) fn gpu_at(location: Location) -> Result<usize> {
    if location.kind != LOCATION_DEVICE {
        return Err(Error::INVALID_VALUE);
    }
    gpus::by_ordinal(location.id)
}

fn check(prop: &AllocationProp) -> Result<usize> {
    let unknown = prop.compression > 1 || prop.reserved != [0; 4];
    if prop.kind != ALLOCATION_PINNED || prop.handle_types & !HANDLE_POSIX_FD != 0 || unknown {
        return Err(Error::INVALID_VALUE);
    }
    gpu_at(prop.location)
}

fn without_flags(flags: u64) -> Result {
    if flags == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

pub(super) fn cuMemGetAllocationGranularity(
    granularity: Out<usize>,
    prop: In<AllocationProp>,
    option: u32,
) -> Result {
    prop.get()?; // CUDA reads it, and accepts anything.
    if option > 1 {
        return Err(Error::INVALID_VALUE);
    }
    granularity.set(BLOCK as usize)
}

pub(super) fn cuMemCreate(
    handle: Out<u64>,
    size: usize,
    prop: In<AllocationProp>,
    flags: u64,
) -> Result {
    handle.check()?;
    without_flags(flags)?;
    let prop = prop.get()?;
    let gpu = check(&prop)?;
    let rdma = prop.gpu_direct_rdma_capable != 0;
    let exportable = prop.handle_types & HANDLE_POSIX_FD != 0;
    let object = gpus::change(|memory| memory.create(gpu, size as u64, rdma, exportable))?;
    handle.set(object.0)
}

pub(super) fn cuMemRelease(handle: u64) -> Result {
    gpus::change(|memory| memory.release(ObjectId(handle)))
}

pub(super) fn cuMemRetainAllocationHandle(handle: Out<u64>, address: *mut c_void) -> Result {
    handle.check()?;
    handle.set(gpus::change(|memory| memory.retain_at(address.addr() as u64))?.0)
}

pub(super) fn cuMemGetAllocationPropertiesFromHandle(
    prop: Out<AllocationProp>,
    handle: u64,
) -> Result {
    let (gpu, rdma, exportable) = gpus::with(|gpu| {
        let object = gpu.memory().object(ObjectId(handle))?;
        Ok::<_, Error>((object.gpu, object.rdma, object.exportable))
    })?;
    prop.set(AllocationProp {
        kind: ALLOCATION_PINNED,
        handle_types: if exportable { HANDLE_POSIX_FD } else { 0 },
        location: Location { kind: LOCATION_DEVICE, id: gpus::ordinal(gpu) },
        gpu_direct_rdma_capable: u8::from(rdma),
        ..AllocationProp::default()
    })
}

pub(super) fn cuMemAddressReserve(
    address: Out<u64>,
    size: usize,
    alignment: usize,
    hint: u64,
    flags: u64,
) -> Result {
    address.check()?;
    without_flags(flags)?;
    address.set(gpus::change(|memory| memory.reserve(size as u64, alignment as u64, hint))?)
}

pub(super) fn cuMemAddressFree(address: u64, size: usize) -> Result {
    gpus::change(|memory| memory.unreserve(address, size as u64))
}

/// Maps whole objects only, as NVIDIA's driver.
pub(super) fn cuMemMap(
    address: u64,
    size: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> Result {
    without_flags(flags)?;
    let len = gpus::with(|gpu| gpu.memory().object(ObjectId(handle)).map(|object| object.len))?;
    if (offset, size as u64) != (0, len) {
        return Err(Error::NOT_SUPPORTED);
    }
    gpus::change(|memory| memory.map(address, len, 0, ObjectId(handle)))
}

pub(super) fn cuMemUnmap(address: u64, size: usize) -> Result {
    gpus::take_away(|memory| memory.unmap(address, size as u64))
}

pub(super) fn cuMemSetAccess(
    address: u64,
    size: usize,
    wanted: In<AccessDesc>,
    count: usize,
) -> Result {
    if count == 0 {
        return Err(Error::INVALID_VALUE);
    }
    (0..count).try_for_each(|index| {
        let wanted = wanted.at(index)?;
        let gpu = gpu_at(wanted.location)?;
        let access = access(wanted.flags)?;
        gpus::change(|memory| memory.set_access(address, size as u64, gpu, access))
    })
}

pub(super) fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) -> Result {
    let of = gpu_at(location.get()?)?;
    flags.set(access_flags(gpus::with(|gpu| gpu.memory().access(address, of))?))
}

/// The access of CUmemAccess_flags.
pub(super) fn access(flags: u32) -> Result<Access> {
    match flags {
        0 => Ok(Access::None),
        1 => Ok(Access::Read),
        3 => Ok(Access::ReadWrite),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// CUmemAccess_flags.
pub(super) fn access_flags(access: Access) -> u64 {
    match access {
        Access::None => 0,
        Access::Read => 1,
        Access::ReadWrite => 3,
    }
}
