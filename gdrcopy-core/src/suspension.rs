//! Takes all pins and mappings of this process out of the driver's hands for a checkpoint, and brings them back.
//!
//! Pins and mappings stay the objects that they are. Their addresses are reserved, and the driver's pin comes back into
//! the same `PinState`. Weak references lead to the pins of a process. References to dropped pins are removed when there
//! is no more room.

use std::sync::{Arc, Weak};

use nix::errno::Errno;

use crate::backend::Source;
use crate::error::{self, Error, Result};
use crate::pin_state::PinState;
use crate::sync::{Mutex, RwLock};
use crate::sys::fork::{self, PerProcess};
use crate::sys::mmap::Reservations;

/// The backends and pins of a process.
#[derive(Default)]
pub(crate) struct Process {
    /// True while everything is suspended. Read by calls that use the driver for more than one pin, or report that one is
    /// usable; written by `suspend` and `resume`.
    suspended: RwLock<bool>,
    pub(crate) backends: Registry<dyn Source>,
    pub(crate) pins: Registry<PinState>,
}

static PROCESS: PerProcess<Process> = PerProcess::new();

/// Objects that others own.
pub(crate) struct Registry<T: ?Sized>(Mutex<Vec<Weak<T>>>);

impl<T: ?Sized> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry(Mutex::default())
    }
}

impl<T: ?Sized> Registry<T> {
    pub(crate) fn add(&self, object: &Arc<T>) -> Result<()> {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|object| object.strong_count() > 0);
            // Doubles, so that this is rare.
            let more = all.len() + 1;
            all.try_reserve(more).map_err(|_| error::no_memory(Errno::ENOMEM))?;
        }
        all.push(Arc::downgrade(object));
        Ok(())
    }

    fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Runs a call that adds to what is open, unless everything is suspended. A suspension waits for it.
pub(crate) fn unless_suspended<R>(call: impl FnOnce(&Process) -> Result<R>) -> Result<R> {
    during(|process, suspended| if suspended { Err(Error::Suspended) } else { call(process) })
}

/// Runs a call for which a suspension waits.
pub(crate) fn during<R>(call: impl FnOnce(&Process, bool) -> Result<R>) -> Result<R> {
    fork::enter()?;
    let process = PROCESS.get(|_| Process::default());
    let suspended = process.suspended.read();
    call(process, *suspended)
}

/// Runs a call that closes what may be open. A suspension waits for it. A forked child may close it, as well.
pub(crate) fn before_or_after<R>(call: impl FnOnce() -> R) -> R {
    let process = fork::enter().ok().map(|_| PROCESS.get(|_| Process::default()));
    let _suspended = process.map(|process| process.suspended.read());
    call()
}

/// Takes all mappings of this process away, unpins everything and closes the driver, for a checkpoint. It waits for the
/// calls in progress, but not for copies. Until [`resume`], an access through a mapping raises SIGSEGV, at its reserved
/// addresses, and ends the process; calls fail with [`Error::Suspended`], except those that release. Has no effect if
/// everything is suspended.
///
/// Host memory in place of GPU memory (`Backend::HostMemory`) stays accessible.
///
/// # Errors
/// The error of the driver or of mmap. Nothing is suspended then. gdrdrv 2.0 answers only the thread that opened it.
/// [`Error::LostBySuspension`] if pins that were taken away before could not be restored either, for example because
/// their memory was freed.
pub fn suspend() -> Result<()> {
    fork::enter()?;
    let process = PROCESS.get(|_| Process::default());
    let mut suspended = process.suspended.write();
    if *suspended {
        return Ok(());
    }
    fork::outlast_checkpoints()?;
    Reservations::read()?; // As `resume` does.
    let pins = process.pins.all();
    if let Err(error) = pins.iter().try_for_each(|pin| pin.suspend()) {
        let lost = restore(&pins, Reservations::read().ok().as_ref());
        if lost > 0 {
            log::error!("the suspension failed: {error}");
        }
        return Err(if lost == 0 { error } else { Error::LostBySuspension { pins: lost } });
    }
    process.backends.all().iter().for_each(|backend| backend.suspend());
    log::info!("suspended {} pins", pins.len());
    *suspended = true;
    Ok(())
}

/// Returns whether everything is suspended.
pub fn is_suspended() -> Result<bool> {
    during(|_, suspended| Ok(suspended))
}

/// Opens the driver again, and pins and maps what [`suspend`] took away, at the same addresses and with the same types.
/// Returns the number of pins for which that failed, for example because their memory was freed. Calls on them fail with
/// [`Error::NotRestored`] from then on, and accesses through their mappings raise SIGSEGV. The reason is logged. It has no
/// effect if nothing is suspended.
///
/// With dma-bufs, CUDA must work in the calling thread. Restore it first.
///
/// # Errors
/// The driver cannot be opened, or `/proc/self/maps` not be read; then everything stays suspended.
pub fn resume() -> Result<usize> {
    fork::enter()?;
    let process = PROCESS.get(|_| Process::default());
    let mut suspended = process.suspended.write();
    if !*suspended {
        return Ok(0);
    }
    let backends = process.backends.all();
    let opened = backends.iter().try_for_each(|backend| backend.resume());
    let reserved = match opened.and_then(|()| Reservations::read()) {
        Ok(reserved) => reserved,
        Err(error) => {
            backends.iter().for_each(|backend| backend.suspend());
            return Err(error);
        }
    };
    *suspended = false;
    let pins = process.pins.all();
    let lost = restore(&pins, Some(&reserved));
    log::info!("resumed {} pins of {}", pins.len() - lost, pins.len());
    Ok(lost)
}

/// Restores those that are suspended, and returns how many could not be.
fn restore(pins: &[Arc<PinState>], reserved: Option<&Reservations>) -> usize {
    pins.iter().filter(|pin| !pin.resume(reserved)).count()
}

/// Frees the lists, when the library is unloaded.
///
/// # Safety
/// Where `may` returns true, no driver is open, and no other thread is inside a call.
pub unsafe fn unload(may: impl FnOnce() -> bool) {
    // SAFETY: references to the lists live as long as a call.
    unsafe { PROCESS.free(|_| may()) }
}
