//! A lock that can still be used after a thread has panicked while holding it.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{self, MutexGuard, PoisonError, TryLockError};

use nix::sys::pthread::pthread_self;

/// A mutex of the standard library, without poisoning. Poisoning is not needed: the C API layer turns a panic into an
/// errno, and the protected data is valid at every point where a panic can occur.
///
/// With `--cfg gdrapi_tsan`, each lock loads what the last unlock stored, so ThreadSanitizer sees that the unlock came
/// first. Otherwise it can miss that, because the slow path of std's locks is precompiled without instrumentation.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    /// The thread that has locked the mutex by [`Mutex::lock_unless_here`], or 0.
    thread: AtomicUsize,
    inner: sync::Mutex<T>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { thread: AtomicUsize::new(0), inner: sync::Mutex::new(value) }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.guard(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the mutex; `None` if it is locked already.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.guard(inner)),
            Err(TryLockError::Poisoned(inner)) => Some(self.guard(inner.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the mutex; `None` if this thread has already locked it by this function. This happens if a program has its
    /// own mmap or a similar function, which is called under the lock, and calls this library again. A signal handler
    /// waits forever if it calls this function in the few instructions for which the mutex is locked and `thread` is 0.
    pub fn lock_unless_here(&self) -> Option<Guard<'_, T>> {
        let this_thread = pthread_self() as usize;
        if self.thread.load(Ordering::Relaxed) == this_thread {
            return None;
        }
        let guard = self.lock();
        self.thread.store(this_thread, Ordering::Relaxed);
        Some(guard)
    }

    /// Returns whether this thread has locked the mutex by [`Mutex::lock_unless_here`].
    pub fn is_locked_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == pthread_self() as usize
    }

    fn guard<'a>(&'a self, inner: MutexGuard<'a, T>) -> Guard<'a, T> {
        if cfg!(gdrapi_tsan) {
            self.thread.load(Ordering::Acquire);
        }
        Guard { thread: &self.thread, inner }
    }
}

/// Gives access to the value that a [`Mutex`] protects, and unlocks the mutex when dropped.
pub struct Guard<'a, T> {
    thread: &'a AtomicUsize,
    inner: MutexGuard<'a, T>,
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutex_after_a_panic_can_be_locked() {
        let mutex = Mutex::<i32>::default();
        let panicked = std::thread::scope(|s| {
            s.spawn(|| {
                let mut guard = mutex.lock();
                *guard = 2;
                panic!("while holding the mutex");
            })
            .join()
        });
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
    }
}
