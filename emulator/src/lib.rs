//! An emulated machine with gdrdrv and CUDA GPUs, for programs that know nothing of it.
//!
//! ```text
//! gdremu (main.rs)                   launcher: options → config, session folder, LD_PRELOAD
//!   └─ program
//!        ├─ libgdremu_runtime.so     (runtime/) on emulated GPUs: a stand-in libcuda.so.1, or
//!        ├─ libgdremu_nvidia.so      (nvidia/) on real ones: some functions of libcuda replaced;
//!        │                           in either: (hooks/) libc's functions that reach gdrdrv
//!        ├─ driver/                  gdrdrv: opens, pins, handles, mappings, releases
//!        ├─ gpu/                     GPU memory behind the trait Provider
//!        └─ ptx/                     interprets gdrcopy's own GPU kernels
//! ```
//!
//! This crate is the part without hooks: state machines that are tested by themselves.

pub mod abi;
pub mod config;
pub mod driver;
pub mod errno;
pub mod fault;
pub mod gpu;
pub mod per_gpu;
pub mod ptx;
pub mod session;
pub mod trace;
pub mod version;
