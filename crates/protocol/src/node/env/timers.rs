//! Timers of a node, ordered by time.

use std::collections::BTreeSet;

use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

use super::deadlines::Deadlines;

/// The reason for a timer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The deadline of the call with this sequence number.
    Call(u64),
    /// Report landed messages.
    Landing,
    /// Acknowledge a peer's frames.
    Acknowledge(NodeId),
    /// Check whether a peer still acknowledges frames.
    Retransmit(NodeId),
    /// The deadline of a move away from this node.
    Move(ActorId),
    /// The next chunk of an image.
    Stage(ActorId),
    /// The end of the wait for a grant.
    Expected(ActorId, ActivationEpoch),
    /// Retry moves that were refused because a target was overloaded.
    MovesAgain,
    /// Expiry of a tombstone.
    Tombstone(ActorId),
}

/// An ordered set of times. Obsolete timers may remain: each handler checks whether its timer still matters.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Deadlines of calls, kept apart because there are so many.
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

    /// Takes the next due timer.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<(Time, Due)> {
        let next = self.next().filter(|next| *next <= now)?;
        // Calls precede other timers due at the same time.
        match self.calls.first() {
            Some((at, _)) if at == next => self.calls.pop_first().map(|(at, sequence)| (at, Due::Call(sequence))),
            _ => self.others.pop_first(),
        }
    }
}
