//! The part of gdremu inside the emulated program. It is preloaded and is two things in one object:
//!
//! ```text
//! hooks/   libc's functions by which programs reach /dev/gdrdrv ──┐
//! cuda/    a stand-in libcuda.so.1 (this object has that name)  ──┼─ state.rs: one machine, one lock
//! tests    gdremu_* functions, below, for tests to ask            ┘
//! next.rs  the functions behind the hooks        proc_files.rs  the module's files under /proc
//! ```

mod cuda;
mod exports;
mod hooks;
mod next;
mod proc_files;
mod state;

use std::ffi::{CStr, c_char, c_int, c_long};

/// Runs when the library is loaded.
extern "C" fn loaded() {
    next::warm_up();
    state::watch_forks();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// The driver calls that this process made since the last call of this function, in order and
/// separated by blanks: `open`, `mmap`, `munmap`, `close`, and the commands by name. The text is
/// valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn gdremu_calls_take() -> *const c_char {
    state::lock().take_calls().as_ptr()
}

/// Number of page tables that this process has pinned.
#[unsafe(no_mangle)]
pub extern "C" fn gdremu_pins() -> c_long {
    let mut machine = state::lock();
    machine.reap_all();
    machine.driver.pins() as c_long
}

/// Replaces the faults to inject by those of a text as `--fault` takes it; the calls count from 1
/// again. Returns 0, or -1 if the text is wrong.
///
/// # Safety
/// `text` is NULL, for no faults, or ends with a NUL byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdremu_faults_set(text: *const c_char) -> c_int {
    let text = if text.is_null() {
        c""
    } else {
        // SAFETY: as the caller promises.
        unsafe { CStr::from_ptr(text) }
    };
    match text.to_str().map(str::parse) {
        Ok(Ok(faults)) => {
            state::lock().faults = faults;
            0
        }
        _ => -1,
    }
}
