//! The part of gdremu inside every emulated program, whoever provides its GPU memory. It is linked
//! into the libraries that are preloaded: `libcuda/` and `nvidia/`.
//!
//! ```text
//! hooks/      libc's functions by which programs reach /dev/gdrdrv, and files of the emulated machine
//! state       the machine of this process, behind one lock
//! exported    which functions are exported to programs, by export.rs
//! exports     descriptors of emulated GPU memory
//! for_tests   gdremu_* functions, for tests to ask
//! next        the functions behind the hooks
//! proc_files  the module's files under /proc
//! ```

mod export;
mod exported;
pub mod exports;
mod for_tests;
mod hooks;
mod next;
mod proc_files;
pub mod state;

use hooks::{exists, files, io, memory};

/// Runs when the library is loaded.
extern "C" fn loaded() {
    next::warm_up();
    state::watch_forks();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
