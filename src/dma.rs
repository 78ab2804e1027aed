//! Reads by CUDA's copy engine, where `GDRCOPY_DMA_READ` asks for them. docs/usage.md says what they require.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use gdrcopy_core::types::MappingType;
use gdrcopy_core::{copy, memory};

use crate::guard::{Call, caught};
use crate::objects::PinEntry;
use crate::{handles, reads};

/// gdr_copy_from_mapping, for what is neither a word nor plain.
///
/// # Safety
/// The contract of [`copy::from_mapping`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn read(handle: usize, dst: *mut u8, src: *const u8, len: usize, mapping_type: MappingType) {
    // SAFETY: contract of this function.
    unsafe {
        let is_large = len >= reads::smallest();
        let may = is_large && mapping_type != MappingType::Caching;
        if !(may && by_copy_engine(handle, dst, src, len)) {
            copy::read_otherwise(mapping_type, dst, src, len);
        }
    }
}

/// Returns whether `dst` is filled. If not, the bytes are not all among those that were asked for when they were pinned
/// and mapped. Or another thread has the handle locked, or CUDA does not copy.
///
/// Where memory faults, a program may leave the copy by siglongjmp. So the mapping and `dst` are accessed while nothing
/// is locked, cancellation is as it was, and no frame has a destructor. Only a copy engine is lost then.
///
/// # Safety
/// `src` is mapped, and `dst` writable for `len` bytes.
unsafe fn by_copy_engine(handle: usize, dst: *mut u8, src: *const u8, len: usize) -> bool {
    // SAFETY: mapped by contract.
    unsafe { copy::flush(src) };
    if memory::require().is_err() {
        return false;
    }
    let find = |pin: &mut PinEntry| {
        let (reads, mapping) = (pin.dma.as_ref()?, pin.mapping.as_ref()?);
        let offset = src.addr().checked_sub(mapping.as_mut_ptr().addr())?;
        let room = mapping.len().checked_sub(offset)?;
        let address = mapping.device_address() + offset as u64;
        let may = len <= room && reads.takes(len);
        may.then(|| (ManuallyDrop::new(Arc::clone(reads)), address))
    };
    let found = caught("gdr_copy_from_mapping", || Ok(handles::try_with(handle, find)));
    let Ok(Some(Some((reads, address)))) = found else {
        return false;
    };
    // SAFETY: `dst` is writable by contract.
    let result = unsafe { reads.engines.read(address, dst, len) };
    let _call = Call::enter();
    drop(ManuallyDrop::into_inner(reads));
    result.inspect_err(|error| log::debug!("read of {len} bytes through the mapping: {error}")).is_ok()
}
