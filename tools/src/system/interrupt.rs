//! Ctrl-C: the first one asks the tool to print what it has measured, and to exit. The second one ends it at once.
#![forbid(unsafe_code)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::files;

#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// The exit status after Ctrl-C.
pub(crate) const STATUS: u8 = 130;

/// The signals that Ctrl-C and `kill` send.
pub(crate) const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

impl Interrupt {
    /// Installs handlers for these signals.
    pub(crate) fn at(signals: &[i32]) -> Result<Interrupt> {
        let arrived = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            // The handler that ends the process if the flag is set runs before the handler that sets the flag. So only
            // the second signal ends the process.
            flag::register_conditional_shutdown(signal, STATUS.into(), arrived.clone())?;
            flag::register(signal, arrived.clone())?;
        }
        Ok(Interrupt(arrived))
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns those of the signals that this process does not ignore.
pub(crate) fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = files::field(&status, "SigIgn").unwrap_or_default();
    let ignored = u64::from_str_radix(mask, 16).unwrap_or(0);
    signals.iter().copied().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect()
}
