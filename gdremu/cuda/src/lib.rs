//! The preload library for programs on emulated GPUs. It is also their libcuda, libcudart and libnvidia-ml:
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! driver/          a stand-in for libcuda.so.1 (this library has that name), with the same emulated GPUs
//! runtime/         the CUDA runtime, which calls the functions in `driver/`
//! nvml             the functions of libnvidia-ml.so.1
//! missing          the functions that gdremu does not have, which fail
//!   args           arguments of C callers
//!   gpus           access to the emulated GPUs, shared with the emulated driver
//!   error          CUresults
//! ```
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

mod args;
mod driver;
mod error;
mod gpus;
mod missing;
mod nvml;
mod runtime;

use gdremu_preload::{refused, state};
