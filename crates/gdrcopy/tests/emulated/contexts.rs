//! Tests, under gdremu, that `HostMemory` keeps the primary context of its GPU active until it is dropped.

use gdrcopy::memory::{DeviceMemory, HostMemory};

use crate::cuda::Cuda;
use crate::ownership::PAGE;
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![host_memory_keeps_the_context_that_it_is_of,];

fn host_memory_keeps_the_context_that_it_is_of() {
    let cuda = Cuda::new();
    let memory = HostMemory::alloc(PAGE).expect("host memory");
    assert!(cuda.release(), "retained by the memory");
    // SAFETY: these are the memory's own bytes, and nothing else uses them.
    unsafe { memory.as_mut_ptr().write_bytes(7, memory.len()) };
    drop(memory);
    let only_user = Cuda::new();
    assert!(!only_user.release(), "the only one that retains it");
}
