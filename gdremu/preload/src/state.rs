//! The emulated driver and GPUs of this process, behind one lock. They are made on first use, because hooks may be
//! called before any constructor runs. While a thread holds the lock, hooks pass its calls on to libc.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::heap;
use crate::process::EmulatedProcess;

static PROCESS: Mutex<Option<EmulatedProcess>> = Mutex::new(None);

thread_local! {
    /// True while this thread holds the lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The guard of the lock of `PROCESS`. A thread that forks holds the lock during the fork, because no thread of the
    /// child could ever release a lock that another thread of the parent holds.
    static OVER_FORK: Cell<Option<ManuallyDrop<MutexGuard<'static, Option<EmulatedProcess>>>>> = const { Cell::new(None) };
}

pub struct Guard(MutexGuard<'static, Option<EmulatedProcess>>);

impl Deref for Guard {
    type Target = EmulatedProcess;

    fn deref(&self) -> &EmulatedProcess {
        self.0.as_ref().expect("made by lock()")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut EmulatedProcess {
        self.0.as_mut().expect("made by lock()")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

fn wait() -> MutexGuard<'static, Option<EmulatedProcess>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock.
///
/// # Panics
/// If the calling thread holds it.
pub fn lock() -> Guard {
    assert!(!INSIDE.replace(true), "the lock of EmulatedProcess is not recursive");
    let mut process = wait();
    process.get_or_insert_with(EmulatedProcess::new);
    Guard(process)
}

/// Takes the lock for a hook. Returns `None` if the calling thread holds the lock, which means that the emulation
/// itself has called the hooked function.
pub fn enter() -> Option<Guard> {
    if is_held_here() { None } else { Some(lock()) }
}

/// Returns whether the calling thread holds the lock. If so, the emulation itself is calling.
pub fn is_held_here() -> bool {
    INSIDE.get()
}

extern "C" fn before_fork() {
    OVER_FORK.set(Some(ManuallyDrop::new(wait())));
    heap::before_fork();
}

extern "C" fn after_fork_in_parent() {
    heap::after_fork();
    drop(OVER_FORK.take().map(ManuallyDrop::into_inner));
}

extern "C" fn after_fork_in_child() {
    heap::after_fork();
    if let Some(guard) = OVER_FORK.take()
        && let Some(process) = ManuallyDrop::into_inner(guard).as_mut()
    {
        INSIDE.set(true);
        process.after_fork();
        INSIDE.set(false);
    }
}

/// Registers functions that take the locks of this library before a fork, and release them after it, in the parent and
/// in the child.
pub(crate) fn watch_forks() {
    // SAFETY: the handlers live as long as this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
    }
}
