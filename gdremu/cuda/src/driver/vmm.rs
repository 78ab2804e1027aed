//! Virtual memory management: cuMemCreate, cuMemAddressReserve, cuMemMap.
#![forbid(unsafe_code)]

use gdremu_core::gpu::address_space::Access;
use gdremu_core::gpu::physical::ObjectId;

use crate::args::In;
use crate::error::{Error, Result, ensure};
use crate::gpus;
use gdremu_core::cuda::types::{
    ALLOCATION_PINNED, AccessDesc, AllocationProp, HANDLE_POSIX_FD, LOCATION_DEVICE, Location,
};

pub(super) fn gpu_at(location: Location) -> Result<usize> {
    ensure(location.kind == LOCATION_DEVICE, Error::INVALID_VALUE)?;
    gpus::by_ordinal(location.id)
}

/// Creates memory. A program may request memory that it can share with other processes, but gdremu has no function that
/// shares it.
pub(super) fn cuMemCreate(size: usize, prop: In<AllocationProp>, flags: u64) -> Result<u64> {
    let prop = prop.get()?;
    let is_known = prop.compression <= 1 && prop.reserved == [0; 4] && prop.handle_types & !HANDLE_POSIX_FD == 0;
    ensure(flags == 0 && prop.kind == ALLOCATION_PINNED && is_known, Error::INVALID_VALUE)?;
    let gpu = gpu_at(prop.location)?;
    let rdma = prop.gpu_direct_rdma_capable != 0;
    Ok(gpus::change(|memory| memory.create(gpu, size as u64, rdma))?.0)
}

pub(super) fn properties(handle: u64) -> Result<AllocationProp> {
    let object = gpus::with(|gpu| gpu.memory().object(ObjectId(handle)).cloned())?;
    Ok(AllocationProp {
        kind: ALLOCATION_PINNED,
        location: Location { kind: LOCATION_DEVICE, id: gpus::ordinal(object.gpu) },
        gpu_direct_rdma_capable: u8::from(object.rdma),
        ..AllocationProp::default()
    })
}

/// Maps an object that cuMemCreate made. Refuses to map only a part of it, as NVIDIA's driver does.
pub(super) fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) -> Result {
    ensure(flags == 0, Error::INVALID_VALUE)?;
    let object = ObjectId(handle);
    let len = gpus::with(|gpu| gpu.memory().object(object).map(|object| object.len))?;
    ensure((offset, size as u64) == (0, len), Error::NOT_SUPPORTED)?;
    gpus::change(|memory| memory.map(address, object))
}

pub(super) fn cuMemSetAccess(address: u64, size: usize, descriptions: In<AccessDesc>, count: usize) -> Result {
    ensure(count != 0, Error::INVALID_VALUE)?;
    for index in 0..count {
        let AccessDesc { location, flags } = descriptions.at(index)?;
        let gpu = gpu_at(location)?;
        let access = match flags {
            0 => Access::None,
            1 => Access::Read,
            3 => Access::ReadWrite,
            _ => return Err(Error::INVALID_VALUE),
        };
        gpus::change(|memory| memory.set_access(address, size as u64, gpu, access))?;
    }
    Ok(())
}
