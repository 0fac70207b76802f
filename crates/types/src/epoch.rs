//! Epochs: numbers that only grow, by which a late party is known to be late.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts the owners of a directory slot: every hand-over raises it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotEpoch(pub u32);

/// Counts the activations of an actor. The owner of its slot hands out the counter, and a new owner starts with a higher
/// slot epoch, so it grows over the whole life of the actor, crashes included.
///
/// Ordered by slot epoch, then by counter.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ActivationEpoch {
    /// The epoch of the slot whose owner granted this activation.
    pub slot: SlotEpoch,
    /// Counts within that slot epoch.
    pub counter: u32,
}

impl ActivationEpoch {
    /// The next activation that the same slot owner grants.
    ///
    /// # Panics
    /// After 2³² activations within one slot epoch: the owner must raise the slot epoch long before.
    pub fn next(self) -> Self {
        let counter = self
            .counter
            .checked_add(1)
            .expect("the slot epoch is raised before its counter runs out");
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
