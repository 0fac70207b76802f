//! What a node waits for, ordered by time.

use std::collections::BTreeSet;

use elastin_types::{ActivationEpoch, ActorId, NodeId, Time};

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
    set: BTreeSet<(Time, Due)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Time, due: Due) {
        self.set.insert((at, due));
    }

    pub(crate) fn unset(&mut self, at: Time, due: Due) {
        self.set.remove(&(at, due));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Takes out the next one that is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<(Time, Due)> {
        if self.next()? > now {
            return None;
        }
        self.set.pop_first()
    }
}
