//! The calls to the kernel, to gdrdrv and to CUDA, and what must be known about processes and threads.

pub mod cancel;
pub(crate) mod cuda;
pub mod fork;
pub(crate) mod gdrdrv;
pub(crate) mod mmap;
