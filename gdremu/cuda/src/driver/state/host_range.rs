//! Host memory that CUDA allocated or registered.

use super::ContextHandle;

/// A range of host memory that is known to CUDA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRange {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) context: ContextHandle,
    pub(crate) gpu: usize,
    /// As for device memory, different for every range of this process.
    pub(crate) id: u64,
}

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// cuMemAllocHost, cuMemHostAlloc.
    Allocated,
    /// cuMemHostRegister: the program's own.
    Registered,
    /// cuMemAllocManaged.
    Managed,
}
