//! The part of gdremu inside a program on emulated GPUs. It is preloaded and is two things in one
//! object:
//!
//! ```text
//! gdremu_preload   libc's functions by which programs reach /dev/gdrdrv, the machine behind them
//! cuda/          a stand-in libcuda.so.1 (this object has that name) over the same machine
//! ```

mod cuda;

use gdremu_preload::{exports, state};
