//! Memory for the C functions that need some.
#![forbid(unsafe_code)]

use std::hint::black_box;

use nix::errno::Errno;

use crate::error::{self, Result};

/// More than all small allocations of an open, a pin or a map together.
const SMALL_ALLOCATIONS: usize = 16 << 10;

/// Fails with ENOMEM if there is no memory for the small allocations that follow, of boxes, strings and map
/// nodes. If one of those fails, the standard library ends the process. Calls that release never allocate.
pub fn require() -> Result<()> {
    let mut room = Vec::<u8>::new();
    let reserved = room.try_reserve_exact(SMALL_ALLOCATIONS);
    // Without it, the compiler removes the unused allocation.
    black_box(&room);
    reserved.map_err(|_| error::no_memory(Errno::ENOMEM))
}
