//! The lifecycle of an activation: its states, the legal transitions, and the attention bits that follow from a state.
//!
//! | event | from | to |
//! |---|---|---|
//! | `Activate` | `Inactive`, `Rerouting` | `Active` |
//! | `RequestEnd` | `Active`, `Freezing`, `Frozen` | `Ending`, `FreezingThenEnding`, `FrozenThenEnding` |
//! | `CancelEnd` | `Ending`, `FreezingThenEnding` | `Active`, `Freezing` |
//! | `RequestFreeze` | `Active`, `Ending` | `Freezing`, `FreezingThenEnding` |
//! | `CompleteFreeze` | `Freezing`, `FreezingThenEnding` | `Frozen`, `FrozenThenEnding` |
//! | `CancelFreeze` | `Freezing`, `Frozen`, and the same `…ThenEnding` | `Active`, `Ending` |
//! | `Lose` | every state in which a turn may run | `Rerouting` |
//! | `End` | every state but `Inactive` | `Inactive` |
//!
//! A freeze precedes an end: a moved activation ends on its new node. [`CellGuard::transition`] performs a transition
//! and derives the attention bits. The place of the instance (idle slot, running thread, mailbox, save) is not part of
//! the lifecycle, see [`CellGuard`](crate::cell::state::CellGuard).
//!
//! The loom model of the protocol between attention bits and idle slot is in [`idle_slot`](crate::cell::idle_slot); that
//! of idle workers is in `scheduler::idle_workers`.
//!
//! [`CellGuard::transition`]: crate::cell::state::CellGuard::transition

use std::sync::atomic::{AtomicU8, Ordering};

/// Attention bit: the mailbox holds messages.
///
/// Attention bits are read before every turn, without the lock; a turn starts inline only if none is set. They change
/// only under the lock.
pub(crate) const MESSAGES: u8 = 1;
/// Attention bit: there is no activation.
pub(crate) const INACTIVE: u8 = 2;
/// Attention bit: the activation freezes or is frozen.
pub(crate) const FREEZE: u8 = 4;
/// Attention bit: the activation is to end.
pub(crate) const END: u8 = 8;
/// Attention bit: a snapshot wants the state's size and references after the current turn.
pub(crate) const REPORT: u8 = 16;
/// Attention bit: a turn of a discarded activation still runs, and a new activation waits for it to end.
pub(crate) const ORPHAN: u8 = 32;

/// The state of an actor's activation on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// There is no activation.
    Inactive,
    /// The activation was lost; its messages wait to be rerouted.
    Rerouting,
    /// Turns may run.
    Active,
    /// The activation ends at the next turn boundary with an empty mailbox.
    Ending,
    /// The activation freezes at its next turn boundary.
    Freezing,
    /// The same; it ends if the freeze is cancelled.
    FreezingThenEnding,
    /// The state was encoded for a move; no turn starts.
    Frozen,
    /// The same; it ends if it is resumed.
    FrozenThenEnding,
}

/// A cause for a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An activation begins.
    Activate,
    /// The activation was idle, requested its end, or the node shuts down.
    RequestEnd,
    /// The save before the end has failed.
    CancelEnd,
    /// A move begins.
    RequestFreeze,
    /// A turn boundary was reached and the state is encoded.
    CompleteFreeze,
    /// The freeze expired, failed or was cancelled, or the frozen activation resumes.
    CancelFreeze,
    /// The state can no longer be trusted; the actor may restart from its saved state.
    Lose,
    /// The activation has ended, was released or discarded, or its messages were rerouted.
    End,
}

impl Lifecycle {
    /// All states, by their number.
    const ALL: [Self; 8] = [
        Self::Inactive,
        Self::Rerouting,
        Self::Active,
        Self::Ending,
        Self::Freezing,
        Self::FreezingThenEnding,
        Self::Frozen,
        Self::FrozenThenEnding,
    ];

    /// Whether there is an activation.
    #[inline]
    pub(crate) fn has_activation(self) -> bool {
        !matches!(self, Self::Inactive | Self::Rerouting)
    }

    /// Whether a freeze was requested or has completed.
    pub(crate) fn is_freezing(self) -> bool {
        self.attention() & FREEZE != 0
    }

    /// The attention bits that follow from the state.
    pub(crate) fn attention(self) -> u8 {
        match self {
            Self::Inactive | Self::Rerouting => INACTIVE,
            Self::Active => 0,
            Self::Ending => END,
            Self::Freezing | Self::Frozen => FREEZE,
            Self::FreezingThenEnding | Self::FrozenThenEnding => FREEZE | END,
        }
    }

    /// The state after an event; `None` if the event is illegal in this state.
    pub(crate) fn after(self, event: Event) -> Option<Self> {
        Some(match (event, self) {
            (Event::Activate, Self::Inactive | Self::Rerouting) => Self::Active,
            (Event::RequestEnd, Self::Active) => Self::Ending,
            (Event::RequestEnd, Self::Freezing) => Self::FreezingThenEnding,
            (Event::RequestEnd, Self::Frozen) => Self::FrozenThenEnding,
            (Event::CancelEnd, Self::Ending) => Self::Active,
            (Event::CancelEnd, Self::FreezingThenEnding) => Self::Freezing,
            (Event::RequestFreeze, Self::Active) => Self::Freezing,
            (Event::RequestFreeze, Self::Ending) => Self::FreezingThenEnding,
            (Event::CompleteFreeze, Self::Freezing) => Self::Frozen,
            (Event::CompleteFreeze, Self::FreezingThenEnding) => Self::FrozenThenEnding,
            (Event::CancelFreeze, Self::Freezing | Self::Frozen) => Self::Active,
            (Event::CancelFreeze, Self::FreezingThenEnding | Self::FrozenThenEnding) => Self::Ending,
            (Event::Lose, Self::Active | Self::Ending | Self::Freezing | Self::FreezingThenEnding) => Self::Rerouting,
            (Event::End, from) if from != Self::Inactive => Self::Inactive,
            _ => return None,
        })
    }
}

/// A flag of a cell. Flags change only under the cell's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flag {
    /// The cell is in a run queue.
    Scheduled = 8,
    /// The running turn, or the one about to suspend, was woken.
    Woken = 16,
    /// A turn is suspended, so spinning for the instance is pointless. Also read without the lock, as a hint.
    Suspended = 32,
}

/// The lifecycle and the flags of a cell in one byte, because a node holds very many cells. Atomic, because it is stored
/// beside the lock that guards it: inside it would take eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Flags(AtomicU8);

/// The bits of the lifecycle.
const LIFECYCLE: u8 = 7;

impl Flags {
    #[inline]
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.0.load(Ordering::Relaxed) & flag as u8 != 0
    }

    /// Sets or clears a flag; returns whether it was set before. The caller holds the lock.
    #[inline]
    pub(crate) fn set(&self, flag: Flag, on: bool) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let after = match on {
            true => before | flag as u8,
            false => before & !(flag as u8),
        };
        self.0.store(after, Ordering::Relaxed);
        before & flag as u8 != 0
    }

    #[inline]
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        Lifecycle::ALL[usize::from(self.0.load(Ordering::Relaxed) & LIFECYCLE)]
    }

    /// Replaces the lifecycle. The caller holds the lock.
    pub(crate) fn set_lifecycle(&self, lifecycle: Lifecycle) {
        let flags = self.0.load(Ordering::Relaxed) & !LIFECYCLE;
        self.0.store(flags | lifecycle as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_lifecycle_are_independent() {
        let all = [Flag::Scheduled, Flag::Woken, Flag::Suspended];
        let flags = Flags::default();
        assert_eq!(flags.lifecycle(), Lifecycle::Inactive);
        for lifecycle in Lifecycle::ALL {
            for flag in all {
                assert!(!flags.set(flag, true));
                assert!(flags.set(flag, true));
            }
            flags.set_lifecycle(lifecycle);
            for flag in all {
                assert!(flags.has(flag));
                assert!(flags.set(flag, false));
                assert!(!flags.has(flag));
            }
            assert_eq!(flags.lifecycle(), lifecycle);
        }
    }

    #[test]
    fn every_state_is_reached_and_left_again() {
        let events = [
            Event::Activate,
            Event::RequestEnd,
            Event::CancelEnd,
            Event::RequestFreeze,
            Event::CompleteFreeze,
            Event::CancelFreeze,
            Event::Lose,
            Event::End,
        ];
        let mut reached = vec![Lifecycle::Inactive];
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            next += 1;
            for after in events.iter().filter_map(|event| state.after(*event)) {
                assert_ne!(after, state);
                if !reached.contains(&after) {
                    reached.push(after);
                }
            }
            assert!(state == Lifecycle::Inactive || state.after(Event::End) == Some(Lifecycle::Inactive));
            // Only an activation can be asked to do something.
            let requests = [Event::RequestEnd, Event::RequestFreeze, Event::CancelFreeze];
            assert!(state.has_activation() || requests.iter().all(|event| state.after(*event).is_none()));
        }
        assert_eq!(reached.len(), Lifecycle::ALL.len());
    }

    #[test]
    fn a_freeze_keeps_a_requested_end() {
        let ending = Lifecycle::Ending;
        let frozen = ending
            .after(Event::RequestFreeze)
            .and_then(|it| it.after(Event::CompleteFreeze));
        assert_eq!(frozen, Some(Lifecycle::FrozenThenEnding));
        assert_eq!(frozen.and_then(|it| it.after(Event::CancelFreeze)), Some(ending));
    }
}
