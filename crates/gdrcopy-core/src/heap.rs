//! Allocates memory for the C functions. If there is none, they fail with ENOMEM.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;

use nix::errno::Errno;

use crate::error::{self, Result};

/// The number of bytes that [`require`] tries to allocate. During one call of a C function, the standard library and
/// other packages allocate fewer bytes.
const SMALL_ALLOCATIONS: usize = 16 << 10;

/// Fails if there is no memory for the small allocations that the caller makes next, such as those of strings. They
/// cannot return an error: if one fails, the standard library ends the process.
pub fn require() -> Result<()> {
    require_bytes(SMALL_ALLOCATIONS)
}

fn require_bytes(size: usize) -> Result<()> {
    let mut room = Vec::<u8>::new();
    let reserved = room.try_reserve_exact(size);
    // Without `black_box`, the compiler removes the unused allocation.
    black_box(&room);
    reserved.map_err(no_memory)
}

/// Moves the value to newly allocated memory, by way of a `Vec`, because only `Vec` reports that there is no memory.
pub fn boxed<T>(value: T) -> Result<Box<[T; 1]>> {
    let mut one = Vec::new();
    one.try_reserve_exact(1).map_err(no_memory)?;
    one.push(value);
    one.into_boxed_slice().try_into().map_err(no_memory)
}

/// Moves the value to newly allocated memory that several owners can share.
pub fn shared<T>(value: T) -> Result<Arc<T>> {
    // Without memory, `Arc::new` ends the process, so this first checks that there is some. Other threads can race.
    require_bytes(size_of::<T>() + 2 * size_of::<usize>())?;
    Ok(Arc::new(value))
}

fn no_memory<E>(_: E) -> error::Error {
    error::no_memory(Errno::ENOMEM)
}
