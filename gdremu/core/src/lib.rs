//! Emulates gdrdrv and CUDA GPUs for unmodified programs.
//!
//! ```text
//! gdremu (../launcher)               options → config, session directory, LD_PRELOAD
//!   └─ program
//!        ├─ libgdremu_cuda.so     (../cuda) on emulated GPUs: a stand-in libcuda.so.1, or
//!        ├─ libgdremu_nvidia.so   (../nvidia) on real ones: some functions of libcuda replaced;
//!        │                        in either: (../preload) libc's functions that reach gdrdrv
//!        ├─ driver/               gdrdrv: opens, pins, handles, mappings, releases
//!        └─ gpu/                  GPU memory behind the trait Provider
//! ```
//!
//! This crate is the part without hooks: state machines with unit tests.

pub mod abi;
pub mod config;
pub mod cuda;
pub mod driver;
pub mod errno;
pub mod fault;
pub mod gpu;
pub mod per_gpu;
pub mod session;
pub mod version;
pub mod vmas;
