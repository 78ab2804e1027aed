//! Prints the log lines of the C libraries to stderr, if `GDRCOPY_ENABLE_LOGGING` is set.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, Log, Metadata, Record};
use nix::errno::Errno;

use crate::cancel::Deferred;
use crate::variables;

/// Installs the logger of the C libraries. From now on, it prints the lines that the environment variables ask for.
pub fn install() {
    // `INSTALLED` is not a `Once`, because a child that is forked off while the `Once` runs would wait for it forever.
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // This fails only if a logger is set already. In a C library, no other code sets one.
        let _ = log::set_logger(&Stderr);
    }
    log::set_max_level(variables::log_level());
}

/// Returns whether `install` was called.
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The sink of the log lines.
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// Writes one line, in one `write`, so that lines of several threads and processes do not mix. Takes no lock of a
    /// standard stream, because a forked child may inherit it locked.
    fn log(&self, record: &Record<'_>) {
        // Writing is a cancellation point, at which `pthread_cancel` would otherwise unwind this function.
        let _deferred = Deferred::new();
        let errno = Errno::last();
        let prefix = match record.level() {
            Level::Debug | Level::Trace => "DBG:  ",
            Level::Info => "INFO: ",
            Level::Warn => "WARN: ",
            Level::Error => "ERR:  ",
        };
        let mut bytes = [0; SIZE];
        let line = line(&mut bytes, format_args!("{prefix}{}", record.args()));
        // If stderr is closed, the error cannot be reported anywhere.
        let _ = nix::unistd::write(std::io::stderr(), line);
        errno.set();
    }

    fn flush(&self) {}
}

/// The largest size of a line in bytes. The rest of a longer line is cut off. The line is on the stack, because some
/// functions, such as `gdr_close`, must be able to log an error when no memory is left.
const SIZE: usize = 1024;
/// Replaces the rest of a line that is too long.
const CUT: &[u8] = b"...\n";

/// Returns the text as a line of at most `SIZE` bytes.
fn line<'a>(bytes: &'a mut [u8; SIZE], text: fmt::Arguments<'_>) -> &'a [u8] {
    let room = SIZE - CUT.len();
    let mut free = &mut bytes[..room];
    // If the text does not fit, `write_fmt` writes a part of it and returns an error.
    let fits = free.write_fmt(text).is_ok();
    let len = room - free.len();
    let end = if fits { b"\n" } else { CUT };
    bytes[len..len + end.len()].copy_from_slice(end);
    &bytes[..len + end.len()]
}
