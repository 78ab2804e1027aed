//! Locks for state that outlives a panic.
#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
#[cfg(gdrapi_tsan)]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{self, PoisonError, TryLockError};

/// A lock of the standard library, without poisoning. The C API layer turns a panic into an errno, and the protected
/// state is valid at every point where a panic can occur.
///
/// Built with `--cfg gdrapi_tsan`, it adds an atomic word that shows its ordering to ThreadSanitizer. The
/// slow path of the standard library's locks is precompiled without instrumentation, and so invisible.
#[derive(Default)]
pub struct Lock<L> {
    inner: L,
    #[cfg(gdrapi_tsan)]
    edge: AtomicU32,
}

pub type Mutex<T> = Lock<sync::Mutex<T>>;

/// For one writer or many readers.
pub type RwLock<T> = Lock<sync::RwLock<T>>;

/// Access to what a [`Mutex`] protects, until it is dropped.
pub type Guard<'a, T> = Held<'a, sync::MutexGuard<'a, T>>;

impl<T> fmt::Debug for Mutex<T> {
    /// Not the protected value, because a writer that also locks it would wait for ever.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Lock {
            inner: sync::Mutex::new(value),
            #[cfg(gdrapi_tsan)]
            edge: AtomicU32::new(0),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.held(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The guard, unless the mutex is held.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.held(inner)),
            Err(TryLockError::Poisoned(inner)) => Some(self.held(inner.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> RwLock<T> {
    /// A thread that holds it must not ask for it again.
    pub fn read(&self) -> Held<'_, sync::RwLockReadGuard<'_, T>> {
        self.held(self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn write(&self) -> Held<'_, sync::RwLockWriteGuard<'_, T>> {
        self.held(self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<L> Lock<L> {
    fn held<G>(&self, inner: G) -> Held<'_, G> {
        #[cfg(gdrapi_tsan)]
        self.edge.load(Ordering::Acquire);
        Held {
            #[cfg(gdrapi_tsan)]
            edge: &self.edge,
            inner,
            lock: PhantomData,
        }
    }
}

/// Access to what a lock protects, until it is dropped.
pub struct Held<'a, G> {
    #[cfg(gdrapi_tsan)]
    edge: &'a AtomicU32,
    inner: G,
    lock: PhantomData<&'a ()>,
}

#[cfg(gdrapi_tsan)]
impl<G> Drop for Held<'_, G> {
    fn drop(&mut self) {
        // Not a store, which would hide what other readers have released.
        self.edge.fetch_add(1, Ordering::Release);
    }
}

impl<G: Deref> Deref for Held<'_, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Held<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
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
