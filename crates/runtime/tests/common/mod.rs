//! What the tests share.

#![allow(dead_code)]

pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod slow_store;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elastin_runtime::Settings;
use tokio::sync::Notify;

/// How long a test waits for an event at most. Generous: the machine may be busy with other things.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Settings with which callers run all that they may run themselves, however long it takes.
pub(crate) fn by_callers() -> Settings {
    Settings {
        brief_max: Duration::MAX,
        short_max: Duration::MAX,
        ..Settings::default()
    }
}

/// Waits for something, and says what was missing if it does not come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {WAIT_MAX:?}"),
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let look = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(what, look).await;
}

/// Holds handlers until it is opened, and knows how many have reached it.
pub(crate) struct Gate {
    waiting: AtomicUsize,
    open: std::sync::atomic::AtomicBool,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            open: std::sync::atomic::AtomicBool::new(false),
            reached: Notify::const_new(),
            opened: Notify::const_new(),
        }
    }

    /// Waits until the gate is open.
    pub(crate) async fn passed(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.reached.notify_waiters();
        loop {
            let opened = self.opened.notified();
            if self.open.load(Ordering::SeqCst) {
                return;
            }
            opened.await;
        }
    }

    /// How many handlers have come to the gate.
    pub(crate) fn count(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until so many handlers have come to the gate.
    pub(crate) async fn reached(&self, count: usize) {
        loop {
            let reached = self.reached.notified();
            if self.waiting.load(Ordering::SeqCst) >= count {
                return;
            }
            reached.await;
        }
    }

    /// Lets everybody pass, now and later.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }
}
