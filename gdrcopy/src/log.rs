//! Log lines on stderr, off unless `GDRCOPY_ENABLE_LOGGING` is set.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::cancel::Deferred;
use crate::settings;

/// Log severity, with the numbers that `GDRCOPY_LOG_LEVEL` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug = 1,
    Info = 2,
    Warn = 3,
    Error = 4,
}

impl Level {
    const fn prefix(self) -> &'static str {
        match self {
            Level::Debug => "DBG:  ",
            Level::Info => "INFO: ",
            Level::Warn => "WARN: ",
            Level::Error => "ERR:  ",
        }
    }
}

const UNREAD: u8 = 0;
const OFF: u8 = u8::MAX;

/// The lowest level that is printed, or one of the two values above.
static THRESHOLD: AtomicU8 = AtomicU8::new(UNREAD);

/// Prints lines of this level and higher ones; none for `None`.
pub(crate) fn set_level(lowest: Option<u8>) {
    THRESHOLD.store(lowest.unwrap_or(OFF), Ordering::Relaxed);
}

/// Whether lines of this level are printed.
pub fn enabled(level: Level) -> bool {
    if THRESHOLD.load(Ordering::Relaxed) == UNREAD {
        // An error before the first open.
        set_level(settings::log_level());
    }
    level as u8 >= THRESHOLD.load(Ordering::Relaxed)
}

/// Writes one line, in one `write`, so that lines of several threads and processes do not mix. No
/// standard stream is involved: a forked child may inherit their locks locked.
pub fn line(level: Level, text: fmt::Arguments<'_>) {
    // Writing is a cancellation point.
    let _deferred = Deferred::new();
    let errno = nix::errno::Errno::last();
    let line = format!("{}{text}\n", level.prefix());
    // If stderr is closed, the error cannot be reported anywhere.
    let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
    errno.set();
}

/// Writes a line if lines of its level are printed; evaluates the arguments only then.
#[doc(hidden)]
#[macro_export]
macro_rules! log_at {
    ($level:ident, $($text:tt)+) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::line($crate::log::Level::$level, format_args!($($text)+))
        }
    };
}
#[doc(hidden)]
#[macro_export]
macro_rules! log_debug {
    ($($text:tt)+) => { $crate::log_at!(Debug, $($text)+) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! log_info {
    ($($text:tt)+) => { $crate::log_at!(Info, $($text)+) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! log_warning {
    ($($text:tt)+) => { $crate::log_at!(Warn, $($text)+) };
}
#[doc(hidden)]
#[macro_export]
macro_rules! log_error {
    ($($text:tt)+) => { $crate::log_at!(Error, $($text)+) };
}
pub use {log_debug as debug, log_error as error, log_info as info, log_warning as warning};
