//! Plain data.
#![forbid(unsafe_code)]

use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned};

use crate::model::noise;

pub(crate) fn value<T: Pod>(seed: u64) -> T {
    pod_read_unaligned(&noise(seed, size_of::<T>()))
}

/// The bits of floats matter.
#[track_caller]
pub(crate) fn assert_bits<T: Pod>(found: &T, model: &[u8]) {
    assert!(bytes_of(found) == model, "another's bytes");
}

/// The bytes of values that may have none.
pub(crate) fn cast_or_empty<T: Pod>(values: &[T]) -> &[u8] {
    if size_of::<T>() == 0 { &[] } else { cast_slice(values) }
}
