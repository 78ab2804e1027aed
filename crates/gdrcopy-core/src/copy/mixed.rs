//! Records whether the process has had mappings of several types.
//!
//! Accesses through mappings of different types pass each other in the CPU. A program that writes through one mapping
//! and reads the same GPU memory through another could read old data. So once the process has used several types, each
//! copy ends with a full fence. Most processes use one type, so copies test a flag that rarely changes.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::hot::HOT;
use crate::routines;
use crate::types::MappingType;

/// Records that the process has a mapping of this type. Mappings that another library has made count, too. Returns the
/// flag that is true if every copy needs a fence after it.
pub fn record(mapping_type: MappingType) -> &'static AtomicBool {
    /// The types that the process has mapped so far, one bit for each type.
    static MAPPED: AtomicU8 = AtomicU8::new(0);
    let this = 1 << mapping_type as u8;
    // `MAPPED` is read first, so that a process with mappings of one type writes it only once.
    if MAPPED.load(Ordering::SeqCst) != this && MAPPED.fetch_or(this, Ordering::SeqCst) & !this != 0 {
        HOT.mixed.store(true, Ordering::SeqCst);
    }
    &HOT.mixed
}

/// Executes a full fence if the process has had mappings of several types. Called at the end of copies.
#[inline(always)]
pub(super) fn fence_if_mixed() {
    if HOT.mixed.load(Ordering::Relaxed) {
        routines::full_fence();
    }
}
