//! Wakes callers and the task that has completed them together, when that task yields: each separate wake would make tokio unpark
//! another worker, which costs more than a call.

use std::pin::pin;
use std::task::{Context, Waker};

use elastin_types::Time;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// The wakers of a task that has completed callers and yielded to them, and of these callers. Tokio runs them once its worker is
/// otherwise idle; [`DeferredWakes::wake_overdue`] wakes them earlier if that takes too long.
#[derive(Default)]
pub(super) struct DeferredWakes(Mutex<DeferredWakers>);

// Wakers are dropped after the lock is released: dropping the last waker of a task drops the task's future.
#[derive(Default)]
struct DeferredWakers {
    /// When they were deferred; none if there are no wakers.
    since: Option<Time>,
    task: Option<Waker>,
    callers: Vec<Waker>,
}

impl DeferredWakes {
    fn replace(&self, wakers: DeferredWakers) -> DeferredWakers {
        std::mem::replace(&mut self.0.lock(), wakers)
    }

    /// Wakes a tokio `task` and the callers that it has completed when the task yields.
    pub(super) fn defer(&self, now: Time, task: &Waker, callers: Vec<Waker>) {
        // Tokio runs the first deferred waker first and the others in reverse order. Second in line, the task runs last.
        let (first, others) = callers.split_at(callers.len().min(1));
        for waker in first.iter().chain([task]).chain(others) {
            wake_after_yield(waker);
        }
        drop(self.replace(DeferredWakers {
            since: Some(now),
            task: Some(task.clone()),
            callers,
        }));
    }

    /// The callers have run, and the task yields once more.
    pub(super) fn clear_callers(&self, now: Time) {
        let callers = {
            let mut wakers = self.0.lock();
            wakers.since = Some(now);
            std::mem::take(&mut wakers.callers)
        };
        drop(callers);
    }

    /// Drops all wakers.
    pub(super) fn clear(&self) {
        drop(self.replace(DeferredWakers::default()));
    }

    /// Wakes the task and the callers if they were deferred at `late` or before; a spurious wake is harmless. Otherwise returns
    /// when they were deferred.
    pub(super) fn wake_overdue(&self, late: Time) -> Option<Time> {
        let since = self.0.lock().since?;
        if since > late {
            return Some(since);
        }
        let wakers = self.replace(DeferredWakers::default());
        wakers.task.into_iter().chain(wakers.callers).for_each(Waker::wake);
        None
    }
}

/// Wakes a waker when this tokio worker has run its other tasks; outside tokio, at once.
pub(super) fn wake_after_yield(waker: &Waker) {
    // `yield_now` defers the waker of the context that polls it, which may be any waker.
    let yielding = pin!(yield_now());
    let _ = yielding.poll(&mut Context::from_waker(waker));
}
