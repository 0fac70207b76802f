//! Source: the design's "outcomes of a call". No call runs twice, and each call ends once. A call reported as not run
//! never runs, and an answered call has run. Without a crash, nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use elastin_protocol::RequestId;
use elastin_types::{CallError, CallId, NodeId, Outcome};

use super::{Turn, Violation};

/// Each call has exactly one outcome, and it is correct.
#[derive(Debug, Default)]
pub(crate) struct TrueOutcomes {
    calls: BTreeMap<CallId, CallFate>,
    /// Requests with a call that has run.
    requests: BTreeSet<RequestId>,
    /// No node is lost in this world, so the outcome of each call must be known.
    pub(crate) nothing_is_lost: bool,
}

#[derive(Debug, Default)]
struct CallFate {
    one_way: bool,
    request: Option<RequestId>,
    ran: bool,
    ended: bool,
    answered: bool,
    /// It was reported as not run.
    denied: bool,
}

impl TrueOutcomes {
    /// A call or tell begins, possibly for a request.
    pub(crate) fn call_begins(&mut self, call: CallId, one_way: bool, request: Option<RequestId>) {
        let fate = CallFate {
            one_way,
            request,
            ..CallFate::default()
        };
        assert!(
            self.calls.insert(call, fate).is_none(),
            "the workload numbers calls once"
        );
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        self.requests.extend(turn.request);
        let fate = self.calls.get_mut(&turn.call).expect("only submitted calls run");
        if std::mem::replace(&mut fate.ran, true) {
            let description = format!("{:?} runs again on {}", turn.call, turn.node);
            return Violation::of("no message runs twice", Some(turn.actor), description);
        }
        if fate.denied {
            let description = format!("{:?} runs on {} after it was reported as not run", turn.call, turn.node);
            return Violation::of("outcomes are true", Some(turn.actor), description);
        }
        Ok(())
    }

    pub(crate) fn call_ends(&mut self, call: CallId, outcome: &Outcome) -> Result<(), Violation> {
        let fate = self.calls.get_mut(&call).expect("only submitted calls end");
        if std::mem::replace(&mut fate.ended, true) {
            return Violation::of(
                "each call ends once",
                None,
                format!("{call:?} ends again with {outcome:?}"),
            );
        }
        fate.answered = outcome.is_ok();
        // The answer may come from another call of the same request.
        let ran = fate.ran || fate.request.is_some_and(|request| self.requests.contains(&request));
        match outcome {
            Ok(_) if !ran => {
                let description = format!("{call:?} was answered and has not run");
                Violation::of("outcomes are true", None, description)
            }
            Err(CallError::NotDelivered(_) | CallError::Overloaded(_) | CallError::Rejected(_)) => {
                fate.denied = true;
                if fate.ran {
                    let description = format!("{call:?} has run and ends with {outcome:?}");
                    return Violation::of("outcomes are true", None, description);
                }
                Ok(())
            }
            Err(CallError::Unknown(_)) if self.nothing_is_lost => {
                let description = format!("{call:?} ends with {outcome:?}, and no node was lost");
                Violation::of("nothing is lost without a crash", None, description)
            }
            _ => Ok(()),
        }
    }

    /// Unfinished calls, and tells that have not run, with a live origin.
    pub(crate) fn open(&self, is_alive: impl Fn(NodeId) -> bool) -> Vec<CallId> {
        let open = |fate: &CallFate| {
            if fate.one_way {
                !fate.ran && !fate.ended
            } else {
                !fate.ended
            }
        };
        self.calls
            .iter()
            .filter(|(call, fate)| open(fate) && is_alive(call.origin))
            .map(|(call, _)| *call)
            .collect()
    }

    /// Unfinished calls with a live origin.
    pub(crate) fn unanswered(&self, is_alive: impl Fn(NodeId) -> bool) -> Vec<CallId> {
        self.calls
            .iter()
            .filter(|(call, fate)| !fate.one_way && !fate.ended && is_alive(call.origin))
            .map(|(call, _)| *call)
            .collect()
    }

    /// Whether a call was answered.
    pub(crate) fn was_answered(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|fate| fate.answered)
    }

    /// The number of calls and tells made, and the number that ran.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let ran = self.calls.values().filter(|fate| fate.ran).count();
        (self.calls.len() as u64, ran as u64)
    }
}
