//! Ctrl-C: the first one asks the tool to tell what it has measured and to end, the second one ends
//! it at once.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the user wants the tool to end.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

/// The exit status after Ctrl-C.
pub const STATUS: u8 = 130;

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen() -> Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag not yet set.
            flag::register_conditional_shutdown(signal, STATUS.into(), asked.clone())?;
            flag::register(signal, asked.clone())?;
        }
        Ok(Interrupt { asked })
    }

    /// Whether the tool was asked to end.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}
