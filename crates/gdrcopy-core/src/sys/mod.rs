//! Calls to the kernel, to gdrdrv and to CUDA; forked children.

pub mod cuda;
pub mod fork;
pub mod gdrdrv;
pub mod mmap;
