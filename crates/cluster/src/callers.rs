//! Callers on this node that wait for an outcome from elsewhere.

use std::collections::HashMap;

use elastin_actor::ReplySlot;
use elastin_types::{CallError, CallId, Outcome, Unknown};
use foldhash::fast::RandomState;

/// Callers on this node, and the outcomes that some of them are about to hear of.
#[derive(Default)]
pub(crate) struct Callers {
    waiting: HashMap<CallId, ReplySlot, RandomState>,
    ended: Ended,
}

/// Calls that are over.
#[derive(Default)]
#[must_use]
pub(crate) struct Ended(Vec<(ReplySlot, Outcome)>);

impl Callers {
    /// Somebody waits for the outcome of a call.
    pub(crate) fn expect(&mut self, call: CallId, caller: ReplySlot) {
        self.waiting.insert(call, caller);
    }

    /// Whether exactly one waits.
    pub(crate) fn waits_one(&self) -> bool {
        self.waiting.len() == 1
    }

    /// A call is over. Its caller hears of it when it is among those that [`Callers::take_ended`] gives.
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
    pub(crate) fn take_ended(&mut self) -> Ended {
        // The next ones are most likely as many: a list that grows step by step is copied as often.
        let next = Ended(Vec::with_capacity(self.ended.0.len()));
        std::mem::replace(&mut self.ended, next)
    }
}

impl Ended {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells their callers, in order.
    pub(crate) fn tell(self) {
        for (caller, outcome) in self.0 {
            caller.complete(outcome);
        }
    }
}
