//! Ctrl-C: the first one asks the tool to print what it has measured, or to undo what it has begun, and to exit. The
//! second one ends it at once.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::files;

#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// The exit status after Ctrl-C.
pub(crate) const STATUS: u8 = 130;

/// Ctrl-C, and the request to end.
pub(crate) const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

impl Interrupt {
    /// Installs handlers for these signals.
    pub(crate) fn quiet(signals: &[i32]) -> Result<Interrupt> {
        let arrived = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            // In this order, because the first signal finds the flag not yet set.
            flag::register_conditional_shutdown(signal, STATUS.into(), arrived.clone())?;
            flag::register(signal, arrived.clone())?;
        }
        Ok(Interrupt(arrived))
    }

    /// Installs handlers, and a thread that prints a line at the first signal.
    pub(crate) fn listen(tool: &'static str) -> Result<Interrupt> {
        Interrupt::quiet(&SIGNALS)?;
        let mut signals = Signals::new(SIGNALS)?;
        let requested = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt(requested.clone());
        thread::spawn(move || {
            signals.forever().next();
            // Below the terminal's ^C and a progress bar.
            let below = if io::stderr().is_terminal() { "\n" } else { "" };
            eprintln!("{below}gdrcopy {tool}: finishing this measurement; Ctrl-C again ends at once");
            // Afterwards, as the tool may then end before this thread goes on.
            requested.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Lets the next signal count as the first.
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Those of the signals that this process does not ignore.
pub(crate) fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = files::field(&status, "SigIgn").unwrap_or_default();
    let ignored = u64::from_str_radix(mask, 16).unwrap_or(0);
    signals.iter().copied().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}
