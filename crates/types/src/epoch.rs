//! Epochs: monotonically increasing numbers that fence stale owners and activations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts the owners of a directory slot: every change of ownership increments it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotEpoch(pub u32);

/// Counts the activations of an actor. The slot's owner assigns the counter, and a new owner starts with a higher slot
/// epoch. It therefore increases over the whole life of the actor, across crashes.
///
/// Ordered by slot epoch, then by counter.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActivationEpoch {
    /// The slot epoch under which the owner granted this activation.
    pub slot: SlotEpoch,
    /// Counts the activations within that slot epoch.
    pub counter: u32,
}

impl ActivationEpoch {
    /// The next activation that the same slot owner grants.
    ///
    /// # Panics
    /// After 2³² activations within one slot epoch: the owner must increment the slot epoch long before.
    pub fn next(self) -> Self {
        let counter = self
            .counter
            .checked_add(1)
            .expect("the slot epoch is incremented before its counter overflows");
        Self {
            slot: self.slot,
            counter,
        }
    }
}

impl fmt::Display for ActivationEpoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.slot.0, self.counter)
    }
}

impl fmt::Debug for ActivationEpoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
