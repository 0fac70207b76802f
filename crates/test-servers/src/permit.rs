//! Limits a process to one etcd cluster at a time. Several clusters that sync to the same disk answer too slowly for
//! tests about members that do not answer.

use std::sync::{Condvar, Mutex, PoisonError};

static TAKEN: Mutex<bool> = Mutex::new(false);
static FREED: Condvar = Condvar::new();

/// The permit to run an etcd cluster. The next holder gets it when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit(());

impl Permit {
    /// Waits for the permit.
    pub(crate) fn wait() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = FREED
            .wait_while(taken, |taken| *taken)
            .unwrap_or_else(PoisonError::into_inner);
        *taken = true;
        Self(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = false;
        FREED.notify_one();
    }
}
