//! The preload library for programs on real GPUs without gdrdrv, for use in laboratories. Hooks of libc functions
//! emulate /dev/gdrdrv. Some functions of libcuda are replaced, because only exportable memory can be pinned here.
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! functions        the replaced functions of libcuda, which call the provider
//!   provider       the memory of real GPUs, as the driver and the hooks need it
//!     rm           the GPU driver's resource manager: import of descriptors, BAR1 mappings
//!     cuda         NVIDIA's libcuda: allocations, and descriptors of them
//! ```
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

mod cuda;
#[cfg(target_arch = "x86_64")]
mod dlsym;
mod functions;
mod provider;
mod replaced;
mod rm;

// Using gdremu_preload also links its hooks of libc functions into this library.
use gdremu_core::config;
use gdremu_preload::state::{self, Guard};

use provider::NvidiaProvider;

/// Returns the provider of real GPU memory. The first call replaces this process's provider of emulated GPUs by it.
fn gpus(process: &mut Guard) -> &mut NvidiaProvider {
    if process.gpu.as_kind::<NvidiaProvider>().is_none() {
        process.gpu = Box::<NvidiaProvider>::default();
    }
    process.gpu.as_kind().expect("it is there now")
}

extern "C" fn loaded() {
    // gdremu sets this variable for the programs that it starts. In other processes, this library does nothing.
    if std::env::var_os(config::VARIABLE).is_some() {
        gpus(&mut state::lock());
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
