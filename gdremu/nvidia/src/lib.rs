//! The preload library for programs on real GPUs without gdrdrv, a laboratory tool. libc hooks serve /dev/gdrdrv,
//! and some functions of libcuda are replaced, because memory must be exportable to be pinned.
//!
//! ```text
//! gdremu_preload   libc functions by which programs reach /dev/gdrdrv, and the emulated driver
//! functions        the replaced functions, over the provider
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

// Using gdremu_preload also links its exports into this library.
use gdremu_core::config;
use gdremu_preload::state::{self, Guard};

use provider::NvidiaProvider;

/// Returns the memory of real GPUs. The first call replaces the emulated GPUs of this process by it.
fn gpus(process: &mut Guard) -> &mut NvidiaProvider {
    if process.gpu.as_kind::<NvidiaProvider>().is_none() {
        process.gpu = Box::<NvidiaProvider>::default();
    }
    process.gpu.as_kind().expect("it is there now")
}

extern "C" fn loaded() {
    // Without the variable, gdremu has not started this process.
    if std::env::var_os(config::VARIABLE).is_some() {
        gpus(&mut state::lock());
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
