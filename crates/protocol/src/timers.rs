//! What a node waits for, ordered by time.

use std::collections::BTreeSet;

use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

use crate::deadlines::Deadlines;

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A call's deadline; the call's sequence number.
    Call(u64),
    /// Say what has landed.
    Landing,
    /// Acknowledge a peer's frames.
    Acknowledge(NodeId),
    /// Look whether a peer still answers.
    Retransmit(NodeId),
    /// The deadline of a move away from here.
    Move(ActorId),
    /// The next part of an image.
    Stage(ActorId),
    /// A grant that messages wait for.
    Expected(ActorId, ActivationEpoch),
    /// Moves that were refused for now.
    MovesAgain,
    /// The memory of where an actor went.
    Tombstone(ActorId),
}

/// An ordered set of times. A timer that is no longer wanted may stay: whoever gets it looks whether it still matters.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Those of calls are apart, because there are so many.
    calls: Deadlines,
    others: BTreeSet<(Time, Due)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Time, due: Due) {
        match due {
            Due::Call(sequence) => self.calls.insert(at, sequence),
            due => drop(self.others.insert((at, due))),
        }
    }

    pub(crate) fn unset(&mut self, at: Time, due: Due) {
        match due {
            Due::Call(sequence) => self.calls.remove(at, sequence),
            due => drop(self.others.remove(&(at, due))),
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let call = self.calls.first().map(|(at, _)| at);
        let other = self.others.first().map(|(at, _)| *at);
        match (call, other) {
            (Some(call), Some(other)) => Some(call.min(other)),
            (call, other) => call.or(other),
        }
    }

    /// Takes out the next one that is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<(Time, Due)> {
        let next = self.next().filter(|next| *next <= now)?;
        // Of those that are due at the same time, calls come first.
        match self.calls.first() {
            Some((at, _)) if at == next => self.calls.pop_first().map(|(at, sequence)| (at, Due::Call(sequence))),
            _ => self.others.pop_first(),
        }
    }
}
