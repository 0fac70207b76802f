//! Attention bits and flags of a cell, one bit each: a node holds very many cells.
//!
//! Attention bits are read before every turn, without the lock; a turn starts inline only if none is set. Flags change
//! only under the cell's lock.

use std::sync::atomic::{AtomicU8, Ordering};

/// Attention bit: the mailbox holds messages.
pub(crate) const MESSAGES: u8 = 1;
/// Attention bit: there is no activation.
pub(crate) const INACTIVE: u8 = 2;
/// Attention bit: a freeze is requested.
pub(crate) const FREEZE: u8 = 4;
/// Attention bit: the activation is to end.
pub(crate) const END: u8 = 8;
/// Attention bit: a snapshot wants the state's size and references after the current turn.
pub(crate) const REPORT: u8 = 16;
/// Attention bit: a turn of a discarded activation still runs.
pub(crate) const ORPHAN: u8 = 32;

/// A flag of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flag {
    /// There is an activation.
    Active = 1,
    /// The cell is in a run queue.
    Scheduled = 2,
    /// The running turn, or the one about to suspend, was woken.
    Woken = 4,
    /// A turn of a discarded activation still runs: a new activation waits for it to end.
    Orphan = 8,
    /// The activation was lost; its messages wait to be rerouted.
    Rerouting = 16,
    /// A turn is suspended, so spinning for the instance is pointless. Also read without the lock, as a hint.
    Suspended = 32,
}

/// The flags of a cell. Atomic, because they are stored beside the lock that guards them: inside it they would take
/// eight bytes.
#[derive(Debug, Default)]
pub(crate) struct Flags(AtomicU8);

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_independent() {
        let all = [
            Flag::Active,
            Flag::Scheduled,
            Flag::Woken,
            Flag::Orphan,
            Flag::Rerouting,
            Flag::Suspended,
        ];
        let flags = Flags::default();
        for flag in all {
            assert!(!flags.set(flag, true));
            assert!(flags.set(flag, true));
        }
        for flag in all {
            assert!(flags.has(flag));
            assert!(flags.set(flag, false));
            assert!(!flags.has(flag));
        }
    }
}
