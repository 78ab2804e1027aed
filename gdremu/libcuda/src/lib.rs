//! The preload library for programs on emulated GPUs. It is two things in one object:
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! cuda/            a stand-in libcuda.so.1 (this object has that name) over the same GPUs
//! ```

mod cuda;

use gdremu_preload::{exports, state};
