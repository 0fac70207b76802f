//! Source: the design's "outcomes of a call". Nothing runs twice; each call ends once; a call that was said not to have run
//! has not and never will, one that was answered has run; and where nothing crashed, nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use elastin_protocol::RequestId;
use elastin_types::{CallError, CallId, NodeId, Outcome};

use super::{Turn, Violation};

/// Each call has exactly one outcome, and it is true.
#[derive(Debug, Default)]
pub(crate) struct TrueOutcomes {
    calls: BTreeMap<CallId, Fate>,
    /// Requests of which a call has run.
    requests: BTreeSet<RequestId>,
    /// No node is lost in this world, so it is known what became of each call.
    pub(crate) nothing_is_lost: bool,
}

#[derive(Debug, Default)]
struct Fate {
    one_way: bool,
    request: Option<RequestId>,
    ran: bool,
    ended: bool,
    answered: bool,
    /// It was said that it did not run.
    denied: bool,
}

impl TrueOutcomes {
    /// A call or tell is made, perhaps for a request.
    pub(crate) fn call_begins(&mut self, call: CallId, one_way: bool, request: Option<RequestId>) {
        let fate = Fate {
            one_way,
            request,
            ..Fate::default()
        };
        assert!(
            self.calls.insert(call, fate).is_none(),
            "the workload numbers calls once"
        );
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        self.requests.extend(turn.request);
        let fate = self.calls.get_mut(&turn.call).expect("only calls that were made run");
        if std::mem::replace(&mut fate.ran, true) {
            let what = format!("{:?} runs again on {}", turn.call, turn.node);
            return Violation::of("no message runs twice", Some(turn.actor), what);
        }
        if fate.denied {
            let what = format!("{:?} runs on {} after it was said not to have", turn.call, turn.node);
            return Violation::of("outcomes are true", Some(turn.actor), what);
        }
        Ok(())
    }

    pub(crate) fn call_ends(&mut self, call: CallId, outcome: &Outcome) -> Result<(), Violation> {
        let fate = self.calls.get_mut(&call).expect("only calls that were made end");
        if std::mem::replace(&mut fate.ended, true) {
            return Violation::of(
                "each call ends once",
                None,
                format!("{call:?} ends again with {outcome:?}"),
            );
        }
        fate.answered = outcome.is_ok();
        // The answer may be that of another call of the same request.
        let ran = fate.ran || fate.request.is_some_and(|request| self.requests.contains(&request));
        match outcome {
            Ok(_) if !ran => {
                let what = format!("{call:?} was answered and has not run");
                Violation::of("outcomes are true", None, what)
            }
            Err(CallError::NotDelivered(_) | CallError::Overloaded(_) | CallError::Rejected(_)) => {
                fate.denied = true;
                if fate.ran {
                    let what = format!("{call:?} has run and ends with {outcome:?}");
                    return Violation::of("outcomes are true", None, what);
                }
                Ok(())
            }
            Err(CallError::Unknown(_)) if self.nothing_is_lost => {
                let what = format!("{call:?} ends with {outcome:?}, and no node was lost");
                Violation::of("nothing is lost without a crash", None, what)
            }
            _ => Ok(()),
        }
    }

    /// Calls that have not ended and tells that have not run, of those whose origin still lives.
    pub(crate) fn open(&self, lives: impl Fn(NodeId) -> bool) -> Vec<CallId> {
        let open = |fate: &Fate| {
            if fate.one_way {
                !fate.ran && !fate.ended
            } else {
                !fate.ended
            }
        };
        self.calls
            .iter()
            .filter(|(call, fate)| open(fate) && lives(call.origin))
            .map(|(call, _)| *call)
            .collect()
    }

    /// Calls whose answer has not come, of those whose origin still lives.
    pub(crate) fn unanswered(&self, lives: impl Fn(NodeId) -> bool) -> Vec<CallId> {
        self.calls
            .iter()
            .filter(|(call, fate)| !fate.one_way && !fate.ended && lives(call.origin))
            .map(|(call, _)| *call)
            .collect()
    }

    /// Whether a call has been answered.
    pub(crate) fn was_answered(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|fate| fate.answered)
    }

    /// How many calls and tells were made, and how many of them ran.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let ran = self.calls.values().filter(|fate| fate.ran).count();
        (self.calls.len() as u64, ran as u64)
    }
}
