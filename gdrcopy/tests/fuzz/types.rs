//! Plain data of every kind that could matter.

use bytemuck::{Pod, Zeroable, bytes_of, cast_slice, pod_read_unaligned};

use crate::memory::noise;

/// A struct that is a word.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Pair {
    first: u16,
    second: i16,
}

// SAFETY: all bits zero are a value of each field.
unsafe impl Zeroable for Pair {}
// SAFETY: two fields of 2 bytes leave no padding, and all bits are values.
unsafe impl Pod for Pair {}

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
