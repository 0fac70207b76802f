//! Calls of local callers that await an outcome from another node.

use std::collections::HashMap;
use std::task::Waker;

use elastin_actor::ReplySender;
use elastin_types::{CallError, CallId, Outcome, Unknown};
use foldhash::fast::RandomState;

/// Pending calls of local callers, and the completions that are not delivered yet.
#[derive(Default)]
pub(crate) struct PendingCalls {
    waiting: HashMap<CallId, ReplySender, RandomState>,
    completions: Completions,
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

    /// Delivers the outcomes, and returns the wakers of the callers.
    pub(crate) fn fill(self) -> Vec<Waker> {
        let fill = |(caller, outcome): (ReplySender, Outcome)| caller.fill(outcome);
        self.0.into_iter().filter_map(fill).collect()
    }
}
