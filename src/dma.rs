//! Reads by CUDA's copy engine, where `GDRCOPY_DMA_READ` asks for them. docs/usage.md says what they require.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gdrcopy::{MappingType, Transfer, copy};

use crate::guard::caught;
use crate::handles;
use crate::objects::PinEntry;

/// No read of fewer bytes is made by a copy engine.
static SMALLEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Makes reads of this many bytes and more. They go through a buffer even if the caller's memory is page-locked: what
/// is late must not overwrite what the caller writes next.
pub(crate) fn reads_from(bytes: usize) -> Arc<Transfer> {
    SMALLEST.fetch_min(bytes, Ordering::Relaxed);
    copy::limit_plain_reads(bytes);
    let options = Transfer::options().read_crossover(bytes).direct(false);
    Arc::new(options.build())
}

/// gdr_copy_from_mapping, for what is neither a word nor plain.
///
/// # Safety
/// As for [`copy::from_mapping`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn read(
    handle: usize,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    mapping_type: MappingType,
) {
    // SAFETY: contract of this function.
    unsafe {
        if len < SMALLEST.load(Ordering::Relaxed) || !by_copy_engine(handle, dst, src, len) {
            copy::read_otherwise(mapping_type, dst, src, len);
        }
    }
}

/// Whether `dst` is filled. If not, the bytes are not all among those that were asked for when they were pinned and
/// mapped, or another thread uses the handle.
///
/// # Safety
/// `dst` is writable for `len` bytes.
unsafe fn by_copy_engine(handle: usize, dst: *mut u8, src: *const u8, len: usize) -> bool {
    let read = |pin: &mut PinEntry| {
        let (transfer, mapping) = (pin.dma.as_ref()?, pin.mapping.as_ref()?.as_slice());
        let offset = src.addr().checked_sub(mapping.as_mut_ptr().addr())?;
        let memory = mapping.slice(offset..).ok()?;
        // SAFETY: writable by contract, and no one else uses it during the call; the old bytes are not read.
        let dst = unsafe { slice::from_raw_parts_mut(dst, len) };
        transfer.read(memory, dst).ok()
    };
    let route = caught("gdr_copy_from_mapping", || {
        Ok(handles::try_with(handle, read))
    });
    matches!(route, Ok(Some(Some(_))))
}
