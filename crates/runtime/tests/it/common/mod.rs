//! Helpers shared by the tests.

pub(crate) mod log;
pub(crate) mod pair;
pub(crate) mod slow_store;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elastin_runtime::Settings;
use tokio::sync::Notify;

/// How long a test waits for an event at most. Generous, because the machine may be busy.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Settings with which callers run and resume all turns inline, however expensive they are.
pub(crate) fn inline_settings() -> Settings {
    Settings {
        inline_turn_max: Duration::MAX,
        resume_turn_max: Duration::MAX,
        ..Settings::default()
    }
}

/// Waits for a future with a time limit; panics with the label on timeout.
pub(crate) async fn within<T>(label: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out after {WAIT_MAX:?} waiting for {label}"),
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(label: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(label, poll).await;
}

/// Blocks handlers until it is opened, and counts those that have reached it.
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

    /// How many handlers have reached the gate.
    pub(crate) fn count(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until this many handlers have reached the gate.
    pub(crate) async fn reached(&self, count: usize) {
        loop {
            let reached = self.reached.notified();
            if self.waiting.load(Ordering::SeqCst) >= count {
                return;
            }
            reached.await;
        }
    }

    /// Opens the gate for all, now and later.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.opened.notify_waiters();
    }
}
