//! Source: the design's "outcomes of a call". Nothing runs twice; each call ends once; a call that was said not to have run
//! has not and never will, one that was answered has run; and where nothing crashed, nothing is lost.

use std::collections::BTreeMap;

use elastin_types::{CallError, CallId, NodeId, Outcome};

use super::{Turn, Violation};

/// Each call has exactly one outcome, and it is true.
#[derive(Debug, Default)]
pub(crate) struct TrueOutcomes {
    calls: BTreeMap<CallId, Fate>,
}

#[derive(Debug, Default)]
struct Fate {
    one_way: bool,
    ran: bool,
    ended: bool,
    /// It was said that it did not run.
    denied: bool,
}

impl TrueOutcomes {
    /// A call or tell is made.
    pub(crate) fn call_begins(&mut self, call: CallId, one_way: bool) {
        let fate = Fate {
            one_way,
            ..Fate::default()
        };
        assert!(
            self.calls.insert(call, fate).is_none(),
            "the workload numbers calls once"
        );
    }

    pub(crate) fn turn_starts(&mut self, turn: &Turn<'_>) -> Result<(), Violation> {
        let fate = self.calls.get_mut(&turn.call).expect("only calls that were made run");
        if std::mem::replace(&mut fate.ran, true) {
            return violated(
                "no message runs twice",
                format!("{:?} runs again on {}", turn.call, turn.node),
            );
        }
        if fate.denied {
            return violated(
                "outcomes are true",
                format!("{:?} runs on {} after it was said not to have", turn.call, turn.node),
            );
        }
        Ok(())
    }

    pub(crate) fn call_ends(&mut self, call: CallId, outcome: &Outcome) -> Result<(), Violation> {
        let fate = self.calls.get_mut(&call).expect("only calls that were made end");
        if std::mem::replace(&mut fate.ended, true) {
            return violated("each call ends once", format!("{call:?} ends again with {outcome:?}"));
        }
        match outcome {
            Ok(_) if !fate.ran => violated("outcomes are true", format!("{call:?} was answered and has not run")),
            Err(CallError::NotDelivered(_) | CallError::Overloaded(_) | CallError::Rejected(_)) => {
                fate.denied = true;
                if fate.ran {
                    return violated(
                        "outcomes are true",
                        format!("{call:?} has run and ends with {outcome:?}"),
                    );
                }
                Ok(())
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

    /// How many calls and tells were made, and how many of them ran.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let ran = self.calls.values().filter(|fate| fate.ran).count();
        (self.calls.len() as u64, ran as u64)
    }
}

fn violated(invariant: &'static str, what: String) -> Result<(), Violation> {
    Err(Violation { invariant, what })
}
