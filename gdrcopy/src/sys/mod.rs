//! Calls to the kernel, to gdrdrv and to CUDA; forked children.

pub(crate) mod cuda;
pub mod fork;
pub(crate) mod gdrdrv;
pub(crate) mod mmap;
