//! Log lines on stderr, off unless `GDRCOPY_ENABLE_LOGGING` is set.
#![forbid(unsafe_code)]

use std::env;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// How grave a line is; `GDRCOPY_LOG_LEVEL` takes these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
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

/// The lowest level that is shown, or one of the two marks above.
static THRESHOLD: AtomicU8 = AtomicU8::new(UNREAD);

/// Reads the environment anew: programs set the variables before they open the driver.
pub(crate) fn read_settings() {
    let threshold = if env::var_os("GDRCOPY_ENABLE_LOGGING").is_none() {
        OFF
    } else {
        let level = env::var("GDRCOPY_LOG_LEVEL")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        level.map_or(Level::Error as u8, |level: i64| level.clamp(1, 5) as u8)
    };
    THRESHOLD.store(threshold, Ordering::Relaxed);
}

/// Whether lines of this level are shown.
pub(crate) fn enabled(level: Level) -> bool {
    if THRESHOLD.load(Ordering::Relaxed) == UNREAD {
        read_settings();
    }
    level as u8 >= THRESHOLD.load(Ordering::Relaxed)
}

/// Writes one line, in one `write`, so that lines of several threads and processes do not mix. No
/// standard stream is involved: their locks may be held for ever in a forked child.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    if enabled(level) {
        let errno = nix::errno::Errno::last();
        let line = format!("{}{text}\n", level.prefix());
        // There is nobody to tell that stderr is closed.
        let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
        errno.set();
    }
}

macro_rules! debug {
    ($($text:tt)+) => { $crate::log::line($crate::log::Level::Debug, format_args!($($text)+)) };
}
macro_rules! info {
    ($($text:tt)+) => { $crate::log::line($crate::log::Level::Info, format_args!($($text)+)) };
}
macro_rules! warning {
    ($($text:tt)+) => { $crate::log::line($crate::log::Level::Warn, format_args!($($text)+)) };
}
macro_rules! error {
    ($($text:tt)+) => { $crate::log::line($crate::log::Level::Error, format_args!($($text)+)) };
}
pub(crate) use {debug, error, info, warning};
