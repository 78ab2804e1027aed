//! The code that both preload libraries of gdremu share. Programs load the library in `cuda/`, which emulates GPUs, or
//! the one in `nvidia/`, which uses real GPUs.
//!
//! ```text
//! entry_points    the macros that export functions, and those exported for tests
//!   hooks/        libc functions by which programs reach /dev/gdrdrv and emulated files
//!   for_tests     gdremu_* functions for tests
//!   refused       GPU kernels that are not run
//! state           the lock that protects `process`
//!   process       the emulated driver and GPUs of this process
//!     descriptors     open devices and exported GPU memory, and the locked files that stand for them
//!     calls           the log of driver calls
//!     refcount        files from which programs read how many pins hold memory
//!     hints           descriptors and addresses that may concern hooks, which read these hints without the lock
//! settings        the configuration, from the environment
//! heap            the allocator of gdremu's own memory
//! next            the table of all hooks, and the functions that they replace
//! system          system calls that copy memory and describe files, and results as libc returns them
//! ```
//!
//! Each module uses only modules that stand below it in this list.

#![allow(missing_docs, reason = "not published: a name that says it all needs no comment")]

use gdremu_core::session;

mod calls;
mod descriptors;
mod entry_points;
mod for_tests;
mod heap;
mod hints;
mod hooks;
mod next;
mod process;
mod refcount;
pub mod refused;
mod settings;
pub mod state;
mod system;

extern "C" fn loaded() {
    if system::is_static_program() {
        system::say(&[
            "gdremu: the program is linked statically, so gdremu cannot serve it: link it without -static\n",
        ]);
        // SAFETY: this ends the process before any other code of this library has run.
        unsafe { libc::_exit(125) };
    }
    heap::show_to_leak_sanitizer();
    next::warm_up();
    state::watch_forks();
    if let Some(of_process) = settings::session() {
        of_process.record(session::LOADED);
        // SAFETY: every thread has an errno. It is set to 0, which programs expect when they start.
        unsafe { *libc::__errno_location() = 0 };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
