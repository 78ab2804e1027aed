//! Values of plain data.
#![forbid(unsafe_code)]

use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned};

use crate::model::noise;

pub(crate) fn value<T: Pod>(seed: u64) -> T {
    pod_read_unaligned(&noise(seed, size_of::<T>()))
}

/// Compares the bytes of a value, because `==` of floats does not compare all bits.
#[track_caller]
pub(crate) fn assert_bits<T: Pod>(found: &T, model: &[u8]) {
    assert!(bytes_of(found) == model, "another's bytes");
}

/// Returns the bytes of values. Their type may have size 0.
pub(crate) fn cast_or_empty<T: Pod>(values: &[T]) -> &[u8] {
    if size_of::<T>() == 0 { &[] } else { cast_slice(values) }
}
