//! The library that every emulated program loads, with any GPU provider. It is linked into the preload
//! libraries `cuda/` and `nvidia/`.
//!
//! ```text
//! hooks/        libc functions by which programs reach /dev/gdrdrv and emulated files
//! exported      the functions exported to programs, by export.rs
//! for_tests     gdremu_* functions for tests
//! export_calls  creating, mapping and releasing descriptors of emulated GPU memory
//! state         the emulated driver and GPUs of this process, behind one lock
//! exports       the table of these descriptors
//! refused       GPU kernels that are not run
//! proc_files    gdrdrv's files under /proc
//! system        what the kernel reports about the caller and its descriptors
//! next          the functions behind the hooks
//! ```

mod export;
mod export_calls;
mod exported;
pub mod exports;
mod for_tests;
mod hooks;
mod next;
mod proc_files;
pub mod refused;
pub mod state;
mod system;

use hooks::{exists, files, io, memory, reads};

/// Runs when the library is loaded.
extern "C" fn loaded() {
    next::warm_up();
    state::watch_forks();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
