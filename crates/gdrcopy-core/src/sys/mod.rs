//! Calls to the kernel, to gdrdrv and to CUDA, and the detection of forked children.

pub mod cuda;
pub mod fork;
pub mod gdrdrv;
pub mod mmap;
