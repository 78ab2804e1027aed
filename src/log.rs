//! Log lines on stderr, off unless `GDRCOPY_ENABLE_LOGGING` is set.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use gdrcopy::cancel::Deferred;
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::errno::Errno;

use crate::settings;

/// Prints lines of this level and more important ones.
pub(crate) fn set_level(level: LevelFilter) {
    install();
    log::set_max_level(level);
}

/// Logs why a C function failed.
pub(crate) fn failure(function: &str, error: &dyn std::fmt::Display) {
    // The first call of the process may fail, before any that reads the environment variables.
    install();
    log::error!("{function}: {error}");
}

fn install() {
    // No `Once`: a child that is forked off in the middle would wait for it.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // Fails only if there is a logger, of which this library has no other.
        let _ = log::set_logger(&Stderr);
        log::set_max_level(settings::log_level());
    }
}

/// The sink of the crate's log lines.
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    /// Writes one line, in one `write`, so that lines of several threads and processes do not mix. No
    /// standard stream is involved: a forked child may inherit their locks locked.
    fn log(&self, record: &Record<'_>) {
        // Writing is a cancellation point.
        let _deferred = Deferred::new();
        let errno = Errno::last();
        let prefix = match record.level() {
            Level::Debug | Level::Trace => "DBG:  ",
            Level::Info => "INFO: ",
            Level::Warn => "WARN: ",
            Level::Error => "ERR:  ",
        };
        let line = format!("{prefix}{}\n", record.args());
        // If stderr is closed, the error cannot be reported anywhere.
        let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
        errno.set();
    }

    fn flush(&self) {}
}
