//! GPU kernels that are not run.

use gdremu_core::config::Unsupported;

use crate::state;

/// Reports a GPU kernel that is not run. It prints its name and the reason, once per name and process,
/// and makes gdremu fail at the end of the program, unless `--unsupported` says otherwise. Not to be
/// called with the lock of [`state`] held.
pub fn kernel(name: &str, why: &str) {
    let mut process = state::lock();
    if process.config.unsupported == Unsupported::Ignore || !process.note_refused(name) {
        return;
    }
    drop(process);
    eprintln!("gdremu: GPU kernel {name} is not run: {why}");
}
