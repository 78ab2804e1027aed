//! Locks for state that outlives a panic.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
#[cfg(gdrapi_tsan)]
use std::sync::atomic::{AtomicU32, Ordering};

/// A mutex without poisoning. The C API layer turns a panic into an errno, and the protected state is valid
/// at every point where a panic can occur.
///
/// Built with `--cfg gdrapi_tsan`, it adds an atomic word that shows its ordering to ThreadSanitizer. The
/// slow path of the standard library's mutex is precompiled without instrumentation, and so invisible.
#[derive(Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
    #[cfg(gdrapi_tsan)]
    edge: AtomicU32,
}

impl<T> fmt::Debug for Mutex<T> {
    /// Not the protected value, because a writer that also locks it would wait for ever.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            inner: std::sync::Mutex::new(value),
            #[cfg(gdrapi_tsan)]
            edge: AtomicU32::new(0),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard(inner)
    }

    /// The guard, unless the mutex is held.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.guard(inner)),
            Err(std::sync::TryLockError::Poisoned(inner)) => Some(self.guard(inner.into_inner())),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> Guard<'a, T> {
        #[cfg(gdrapi_tsan)]
        self.edge.load(Ordering::Acquire);
        Guard {
            #[cfg(gdrapi_tsan)]
            edge: &self.edge,
            inner,
        }
    }
}

/// Access to what a [`Mutex`] protects, until it is dropped.
pub struct Guard<'a, T> {
    #[cfg(gdrapi_tsan)]
    edge: &'a AtomicU32,
    inner: std::sync::MutexGuard<'a, T>,
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

/// A lock for one writer or many readers, with the properties of [`Mutex`].
#[derive(Default)]
pub struct RwLock<T> {
    inner: std::sync::RwLock<T>,
    #[cfg(gdrapi_tsan)]
    edge: AtomicU32,
}

impl<T> RwLock<T> {
    /// A thread that holds it must not ask for it again.
    pub fn read(&self) -> RwGuard<'_, std::sync::RwLockReadGuard<'_, T>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        self.guard(inner)
    }

    pub fn write(&self) -> RwGuard<'_, std::sync::RwLockWriteGuard<'_, T>> {
        let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        self.guard(inner)
    }

    fn guard<G>(&self, inner: G) -> RwGuard<'_, G> {
        #[cfg(gdrapi_tsan)]
        self.edge.load(Ordering::Acquire);
        RwGuard {
            #[cfg(gdrapi_tsan)]
            edge: &self.edge,
            inner,
            lock: std::marker::PhantomData,
        }
    }
}

/// Access to what an [`RwLock`] protects, until it is dropped.
pub struct RwGuard<'a, G> {
    #[cfg(gdrapi_tsan)]
    edge: &'a AtomicU32,
    inner: G,
    lock: std::marker::PhantomData<&'a ()>,
}

#[cfg(gdrapi_tsan)]
impl<G> Drop for RwGuard<'_, G> {
    fn drop(&mut self) {
        // Not a store, which would hide what other readers have released.
        self.edge.fetch_add(1, Ordering::Release);
    }
}

impl<G: Deref> Deref for RwGuard<'_, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for RwGuard<'_, G> {
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
