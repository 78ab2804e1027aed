//! Ctrl-C: the first one asks the tool to print what it has measured and to exit; the second one
//! ends it at once.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// The exit status after Ctrl-C.
pub(crate) const STATUS: u8 = 130;

impl Interrupt {
    /// Installs the signal handlers, and a thread that prints a line at the first signal.
    pub(crate) fn listen(tool: &'static str) -> Result<Interrupt> {
        let arrived = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order, because the first signal finds the flag not yet set.
            flag::register_conditional_shutdown(signal, STATUS.into(), arrived.clone())?;
            flag::register(signal, arrived.clone())?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
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
}
