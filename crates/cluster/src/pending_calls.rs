//! Calls of local callers that await an outcome from another node.

use std::collections::HashMap;
use std::pin::pin;
use std::task::{Context, Waker};

use elastin_actor::ReplySender;
use elastin_types::{CallError, CallId, Outcome, Time, Unknown};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// Pending calls of local callers, and the completions that are not delivered yet.
#[derive(Default)]
pub(crate) struct PendingCalls {
    waiting: HashMap<CallId, ReplySender, RandomState>,
    completions: Completions,
}

/// The wakers of a task that has completed callers and yielded to them, and of these callers. Tokio runs them once its worker is
/// otherwise idle; [`DeferredWakes::wake_overdue`] wakes them earlier if that takes too long.
#[derive(Default)]
pub(crate) struct DeferredWakes(Mutex<DeferredWakers>);

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

    /// The callers have run, and the task yields once more.
    pub(crate) fn clear_callers(&self, now: Time) {
        let callers = {
            let mut wakers = self.0.lock();
            wakers.since = Some(now);
            std::mem::take(&mut wakers.callers)
        };
        drop(callers);
    }

    /// Drops all wakers.
    pub(crate) fn clear(&self) {
        drop(self.replace(DeferredWakers::default()));
    }

    /// Wakes the task and the callers if they were deferred at `late` or before; a spurious wake is harmless. Otherwise returns
    /// when they were deferred.
    pub(crate) fn wake_overdue(&self, late: Time) -> Option<Time> {
        let since = self.0.lock().since?;
        if since > late {
            return Some(since);
        }
        let wakers = self.replace(DeferredWakers::default());
        wakers.task.into_iter().chain(wakers.callers).for_each(Waker::wake);
        None
    }
}

/// Completed calls whose callers are not notified yet.
#[derive(Default)]
#[must_use]
pub(crate) struct Completions(Vec<(ReplySender, Outcome)>);

impl PendingCalls {
    /// Adds a call whose outcome the caller awaits.
    pub(crate) fn insert(&mut self, call: CallId, caller: ReplySender) {
        self.waiting.insert(call, caller);
    }

    /// The number of pending calls.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Completes a call. Its caller is notified with those that [`PendingCalls::take_completions`] returns.
    pub(crate) fn complete(&mut self, call: CallId, outcome: Outcome) {
        if let Some(caller) = self.waiting.remove(&call) {
            self.completions.0.push((caller, outcome));
        }
    }

    /// Completes all calls with an unknown outcome.
    pub(crate) fn fail_all(&mut self) {
        let lost = || Err(CallError::Unknown(Unknown::NodeLost));
        self.completions
            .0
            .extend(self.waiting.drain().map(|(_, caller)| (caller, lost())));
    }

    /// Takes the completions that are not delivered yet.
    pub(crate) fn take_completions(&mut self) -> Completions {
        // The next batch most likely has the same size: reserving it avoids copies while the list grows.
        let next = Completions(Vec::with_capacity(self.completions.0.len()));
        std::mem::replace(&mut self.completions, next)
    }
}

impl Completions {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of completed calls.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notifies the callers, in order.
    pub(crate) fn notify(self) {
        for (caller, outcome) in self.0 {
            caller.complete(outcome);
        }
    }

    /// Notifies the callers for a tokio `task` that yields to them. Task and callers are woken together when the task yields: each
    /// separate wake would make tokio unpark another worker, which costs more than a call.
    pub(crate) fn notify_deferred(self, now: Time, task: &Waker, deferred_wakes: &DeferredWakes) {
        let filled = self.0.into_iter().filter_map(|(caller, outcome)| caller.fill(outcome));
        let callers: Vec<Waker> = filled.collect();
        // Tokio runs the first deferred waker first and the others in reverse order. Second in line, the task runs last.
        let (first, others) = callers.split_at(callers.len().min(1));
        for waker in first.iter().chain([task]).chain(others) {
            wake_after_yield(waker);
        }
        let task = Some(task.clone());
        let since = Some(now);
        drop(deferred_wakes.replace(DeferredWakers { since, task, callers }));
    }
}

/// Wakes a waker when this tokio worker has run its other tasks; outside tokio, at once.
fn wake_after_yield(waker: &Waker) {
    // `yield_now` defers the waker of the context that polls it, which may be any waker.
    let yielding = pin!(yield_now());
    let _ = yielding.poll(&mut Context::from_waker(waker));
}
