//! Locks for state that outlives a panic.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
#[cfg(gdrapi_tsan)]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{self, MutexGuard, TryLockError};

use nix::sys::pthread::pthread_self;

/// A mutex of the standard library, without poisoning. The C API layer turns a panic into an errno, and the protected
/// state is valid at every point where a panic can occur.
///
/// Built with `--cfg gdrapi_tsan`, it adds an atomic word that shows its ordering to ThreadSanitizer. The
/// slow path of the standard library's locks is precompiled without instrumentation, and so invisible.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: sync::Mutex<T>,
    #[cfg(gdrapi_tsan)]
    edge: AtomicU32,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            inner: sync::Mutex::new(value),
            #[cfg(gdrapi_tsan)]
            edge: AtomicU32::new(0),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        match self.inner.lock() {
            Ok(inner) => self.guard(inner),
            Err(poisoned) => self.guard(poisoned.into_inner()),
        }
    }

    /// The guard, unless the mutex is held.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.guard(inner)),
            Err(TryLockError::Poisoned(inner)) => Some(self.guard(inner.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn guard<'a>(&'a self, inner: MutexGuard<'a, T>) -> Guard<'a, T> {
        #[cfg(gdrapi_tsan)]
        self.edge.load(Ordering::Acquire);
        Guard {
            #[cfg(gdrapi_tsan)]
            edge: &self.edge,
            inner,
        }
    }
}

/// Gives access to the value that a [`Mutex`] protects, until it is dropped.
pub struct Guard<'a, T> {
    #[cfg(gdrapi_tsan)]
    edge: &'a AtomicU32,
    inner: MutexGuard<'a, T>,
}

#[cfg(gdrapi_tsan)]
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.edge.store(1, Ordering::Release);
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

/// A mutex that refuses the thread that has it locked. Such a thread calls again from a hook of a function that is called
/// under the lock. In a signal handler that interrupts the few instructions between lock and note, it waits for ever.
#[derive(Debug, Default)]
pub struct Exclusive<T> {
    /// The thread that has it locked, or 0.
    thread: AtomicUsize,
    mutex: Mutex<T>,
}

impl<T> Exclusive<T> {
    /// Returns whether this thread has it locked.
    pub fn is_locked_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == pthread_self() as usize
    }

    /// Access to the value; `None` if this thread has it already.
    pub fn lock(&self) -> Option<Exclusively<'_, T>> {
        let this_thread = pthread_self() as usize;
        if self.thread.load(Ordering::Relaxed) == this_thread {
            return None;
        }
        let guard = self.mutex.lock();
        self.thread.store(this_thread, Ordering::Relaxed);
        Some(Exclusively { thread: &self.thread, guard })
    }
}

/// Gives access to the value that an [`Exclusive`] protects, until it is dropped.
pub struct Exclusively<'a, T> {
    thread: &'a AtomicUsize,
    guard: Guard<'a, T>,
}

impl<T> Drop for Exclusively<'_, T> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Exclusively<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Exclusively<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
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

    #[test]
    fn exclusive_refuses_only_the_thread_that_has_it() {
        let exclusive = Exclusive::<i32>::default();
        let mut value = exclusive.lock().expect("not locked");
        assert!(exclusive.lock().is_none());
        std::thread::scope(|s| {
            let other = s.spawn(|| exclusive.lock().map(|value| *value));
            *value = 2;
            drop(value);
            assert_eq!(other.join().expect("no panic"), Some(2));
        });
        assert!(exclusive.lock().is_some());
    }
}
