//! The types that threads of a pool share, from the standard library, or, with `--cfg
//! gdrapi_loom`, from loom.
#![forbid(unsafe_code)]

#[cfg(not(gdrapi_loom))]
pub(crate) use gdrcopy_core::sync::{Guard, Mutex};
#[cfg(gdrapi_loom)]
pub(crate) use modeled::{Arc, Guard, Mutex, Weak};
#[cfg(not(gdrapi_loom))]
pub(crate) use std::sync::{Arc, Weak};

/// The same types as loom sees them, where its `Arc` has no `Weak`, and its mutex is poisoned.
#[cfg(gdrapi_loom)]
mod modeled {
    use std::ops::Deref;
    use std::sync;

    pub(crate) use loom::sync::MutexGuard as Guard;
    use loom::sync::atomic::{AtomicUsize, Ordering, fence};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("loom ends at the first panic")
        }
    }

    /// The count that loom sees comes with the standard library's, which changes right after it.
    #[derive(Debug)]
    pub(crate) struct Arc<T> {
        value: sync::Arc<T>,
        strong: sync::Arc<AtomicUsize>,
    }

    #[derive(Debug)]
    pub(crate) struct Weak<T> {
        value: sync::Weak<T>,
        strong: sync::Arc<AtomicUsize>,
    }

    impl<T> Arc<T> {
        pub(crate) fn new(value: T) -> Arc<T> {
            Arc { value: sync::Arc::new(value), strong: sync::Arc::new(AtomicUsize::new(1)) }
        }

        pub(crate) fn strong_count(this: &Arc<T>) -> usize {
            this.strong.load(Ordering::Relaxed)
        }

        pub(crate) fn downgrade(this: &Arc<T>) -> Weak<T> {
            Weak { value: sync::Arc::downgrade(&this.value), strong: sync::Arc::clone(&this.strong) }
        }
    }

    impl<T> Clone for Arc<T> {
        fn clone(&self) -> Arc<T> {
            self.strong.fetch_add(1, Ordering::Relaxed);
            Arc { value: sync::Arc::clone(&self.value), strong: sync::Arc::clone(&self.strong) }
        }
    }

    impl<T> Deref for Arc<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> Drop for Arc<T> {
        fn drop(&mut self) {
            if self.strong.fetch_sub(1, Ordering::Release) == 1 {
                fence(Ordering::Acquire);
            }
        }
    }

    impl<T> Weak<T> {
        pub(crate) fn strong_count(&self) -> usize {
            self.strong.load(Ordering::Relaxed)
        }

        pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            let one_more = |count| (count > 0).then_some(count + 1);
            self.strong.fetch_update(acquire, relaxed, one_more).ok()?;
            Some(Arc { value: self.value.upgrade().expect("it was counted"), strong: sync::Arc::clone(&self.strong) })
        }
    }
}
