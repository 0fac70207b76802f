//! Synchronization primitives of the scheduler and the cells. With the feature `loom` they are loom's, whose models
//! explore every interleaving that the memory model allows; only those models run then.

#[cfg(not(feature = "loom"))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};

    use crossbeam_utils::atomic::AtomicCell;
    pub(crate) use crossbeam_utils::sync::{Parker, Unparker};
    pub(crate) use parking_lot::Mutex;

    /// An optional box that is swapped atomically.
    pub(crate) type BoxCell<T> = AtomicCell<Option<Box<T>>>;
}

#[cfg(feature = "loom")]
mod modelled {
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
    use loom::sync::{Arc, Condvar, MutexGuard};

    /// A mutex without poisoning.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// An optional box that is swapped atomically.
    pub(crate) struct BoxCell<T>(Mutex<Option<Box<T>>>);

    impl<T> BoxCell<T> {
        pub(crate) fn new(value: Option<Box<T>>) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn take(&self) -> Option<Box<T>> {
            self.swap(None)
        }

        pub(crate) fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
            std::mem::replace(&mut *self.0.lock(), value)
        }
    }

    /// A token that one thread waits for.
    pub(crate) struct Parker(Unparker);

    /// Hands over the token.
    #[derive(Clone)]
    pub(crate) struct Unparker(Arc<(loom::sync::Mutex<bool>, Condvar)>);

    impl Parker {
        pub(crate) fn new() -> Self {
            Self(Unparker(Arc::new((loom::sync::Mutex::new(false), Condvar::new()))))
        }

        pub(crate) fn park(&self) {
            let (token, given) = &*self.0.0;
            let mut token = token.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *token) {
                token = given.wait(token).unwrap_or_else(PoisonError::into_inner);
            }
        }

        /// Models have no clock: either the token arrives, or the model has found a thread that waits forever.
        pub(crate) fn park_timeout(&self, _timeout: Duration) {
            self.park();
        }

        pub(crate) fn unparker(&self) -> &Unparker {
            &self.0
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            let (token, given) = &*self.0;
            *token.lock().unwrap_or_else(PoisonError::into_inner) = true;
            given.notify_one();
        }
    }
}

#[cfg(feature = "loom")]
pub(crate) use modelled::*;
#[cfg(not(feature = "loom"))]
pub(crate) use real::*;
