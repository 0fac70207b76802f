//! PendingCalls on this node that wait for an outcome from elsewhere.

use std::collections::HashMap;
use std::pin::pin;
use std::task::{Context, Waker};

use elastin_actor::ReplySender;
use elastin_types::{CallError, CallId, Outcome, Time, Unknown};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// PendingCalls on this node, and the outcomes that some of them are about to receive of.
#[derive(Default)]
pub(crate) struct PendingCalls {
    waiting: HashMap<CallId, ReplySender, RandomState>,
    ended: Completions,
}

/// A task that has told callers and given way to them, and these callers. They go on when a thread of tokio's has nothing else to
/// do; if what it does takes too long, they are woken from here.
#[derive(Default)]
pub(crate) struct DeferredWakes(Mutex<Woken>);

// Wakers are dropped when the lock is free again: the last one of a task drops whatever the task has.
#[derive(Default)]
struct Woken {
    /// Since when; none if nobody waits like this.
    since: Option<Time>,
    task: Option<Waker>,
    callers: Vec<Waker>,
}

impl DeferredWakes {
    fn replace(&self, woken: Woken) -> Woken {
        std::mem::replace(&mut self.0.lock(), woken)
    }

    /// The callers had their turn, but the task gives way again, from now on.
    pub(crate) fn forget_callers(&self, now: Time) {
        let callers = {
            let mut woken = self.0.lock();
            woken.since = Some(now);
            std::mem::take(&mut woken.callers)
        };
        drop(callers);
    }

    /// Nobody waits like this any more.
    pub(crate) fn forget_all(&self) {
        drop(self.replace(Woken::default()));
    }

    /// Wakes those who have been waiting since `late` or before. Who was woken meanwhile takes no harm. If they are not that late, says
    /// since when they wait.
    pub(crate) fn wake(&self, late: Time) -> Option<Time> {
        let since = self.0.lock().since?;
        if since > late {
            return Some(since);
        }
        let woken = self.replace(Woken::default());
        woken.task.into_iter().chain(woken.callers).for_each(Waker::wake);
        None
    }
}

/// Calls that are over.
#[derive(Default)]
#[must_use]
pub(crate) struct Completions(Vec<(ReplySender, Outcome)>);

impl PendingCalls {
    /// Somebody waits for the outcome of a call.
    pub(crate) fn expect(&mut self, call: CallId, caller: ReplySender) {
        self.waiting.insert(call, caller);
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A call is over. Its caller hears of it when it is among those that [`PendingCalls::take_ended`] gives.
    pub(crate) fn end(&mut self, call: CallId, outcome: Outcome) {
        if let Some(caller) = self.waiting.remove(&call) {
            self.ended.0.push((caller, outcome));
        }
    }

    /// What becomes of all calls will never be known here.
    pub(crate) fn end_all(&mut self) {
        let lost = || Err(CallError::Unknown(Unknown::NodeLost));
        self.ended
            .0
            .extend(self.waiting.drain().map(|(_, caller)| (caller, lost())));
    }

    /// Takes the calls that are over, whose callers have not heard of it.
    pub(crate) fn take_ended(&mut self) -> Completions {
        // The next ones are most likely as many: a list that grows step by step is copied as often.
        let next = Completions(Vec::with_capacity(self.ended.0.len()));
        std::mem::replace(&mut self.ended, next)
    }
}

impl Completions {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells their callers, in order.
    pub(crate) fn tell(self) {
        for (caller, outcome) in self.0 {
            caller.complete(outcome);
        }
    }

    /// The same for a `task` of tokio's that gives way to them: they are woken all at once when it does, and it is woken along. Woken
    /// one by one, each would have another of tokio's threads look for something to do, which takes more time than a call.
    pub(crate) fn tell_before_giving_way(self, now: Time, task: &Waker, deferred_wakes: &DeferredWakes) {
        let told = self.0.into_iter().filter_map(|(caller, outcome)| caller.fill(outcome));
        let callers: Vec<Waker> = told.collect();
        // Tokio runs the first of them first and then the others, the last one first: so the task is behind all of them.
        let (first, others) = callers.split_at(callers.len().min(1));
        for waker in first.iter().chain([task]).chain(others) {
            wake_after_giving_way(waker);
        }
        let task = Some(task.clone());
        let since = Some(now);
        drop(deferred_wakes.replace(Woken { since, task, callers }));
    }
}

/// Has somebody woken when this thread of tokio's has nothing else to do; outside of tokio, at once.
fn wake_after_giving_way(waker: &Waker) {
    // That is what becomes of whoever gives way, and it may be for anybody.
    let gives_way = pin!(yield_now());
    let _ = gives_way.poll(&mut Context::from_waker(waker));
}
