//! Reports GPU kernels that the program launches, but that gdremu cannot run.

use gdremu_core::config::Unsupported;

use crate::state;

/// Prints the name of a GPU kernel that gdremu does not run, and why, once per name and process. Then ends the process,
/// except with gdremu's option `--unsupported warn`. The calling thread must not hold the lock of [`state`].
pub fn kernel(name: &str, why: &str) {
    // Another thread that launches the kernel waits for the lock until the message is printed, or the process ends.
    let mut process = state::lock();
    if !process.note_refused(name) {
        return;
    }
    eprintln!("gdremu: GPU kernel {name} is not run: {why}");
    if let Unsupported::Exit(status) = process.config.unsupported {
        eprintln!("gdremu: the program ends here with status {status}; with --unsupported warn it would go on");
        // SAFETY: this ends the process. Destructors do not run, because they could wait for a GPU kernel.
        unsafe { libc::_exit(status.into()) };
    }
}
