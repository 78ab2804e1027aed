//! The state of this process behind one lock.
//!
//! Made on first use, so that a hook called before any constructor finds it. While a thread holds
//! the lock, its own libc calls pass through the hooks untouched.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::process::EmulatedProcess;

static PROCESS: Mutex<Option<EmulatedProcess>> = Mutex::new(None);

thread_local! {
    /// This thread holds the lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
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

/// Takes the lock.
///
/// # Panics
/// If the calling thread holds it.
pub fn lock() -> Guard {
    assert!(!INSIDE.replace(true), "the lock of EmulatedProcess is not recursive");
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    process.get_or_insert_with(EmulatedProcess::new);
    Guard(process)
}

/// Takes the lock for a hook; `None` within calls that the emulation itself makes.
pub fn enter() -> Option<Guard> {
    (!is_held_here()).then(lock)
}

/// Returns whether the calling thread holds the lock; then the emulation itself is calling.
pub fn is_held_here() -> bool {
    INSIDE.get()
}

/// The lock, kept over a fork, so that the child gets it in a state that it can use.
struct HeldOverFork(UnsafeCell<Option<MutexGuard<'static, Option<EmulatedProcess>>>>);

// SAFETY: touched only by the handlers below, whose first has taken the lock.
unsafe impl Sync for HeldOverFork {}

static HELD_OVER_FORK: HeldOverFork = HeldOverFork(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this thread holds the lock.
    unsafe { *HELD_OVER_FORK.0.get() = Some(guard) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: this thread holds the lock since `before_fork`.
    drop(unsafe { (*HELD_OVER_FORK.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    // SAFETY: this thread holds the lock since `before_fork`.
    let guard = unsafe { (*HELD_OVER_FORK.0.get()).take() };
    if let Some(mut guard) = guard
        && let Some(process) = guard.as_mut()
    {
        INSIDE.set(true);
        process.after_fork();
        INSIDE.set(false);
    }
}

/// Makes forks safe. Called when the library is loaded.
pub(crate) fn watch_forks() {
    // SAFETY: the handlers live as long as this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
    }
}
