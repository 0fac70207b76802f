//! What an actor's turns are like, as far as is known from those that were measured.

use std::sync::atomic::{AtomicU8, Ordering};

/// How many measured turns were so, one after another, before it counts.
const SURE: u8 = 4;

/// Twice that much is remembered, so that one turn which was interrupted by the system does not count.
const MOST: u8 = 2 * SURE;

/// What an actor's turns are like. Only a hint. Half a byte counts those that were brief, the other half those that were short:
/// there are very many actors.
#[derive(Default)]
pub(crate) struct TurnCost(AtomicU8);

impl TurnCost {
    /// Whether turns are so brief that whoever tells them runs them, as far as is known.
    #[inline]
    pub(crate) fn is_inline_cheap(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 0xf >= SURE
    }

    /// Whether turns are so short that whoever calls goes on with them, as far as is known.
    #[inline]
    pub(crate) fn is_resume_cheap(&self) -> bool {
        self.0.load(Ordering::Relaxed) >> 4 >= SURE
    }

    /// A turn was measured.
    pub(crate) fn note(&self, is_brief: bool, is_short: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let (brief, short) = (counted(before & 0xf, is_brief), counted(before >> 4, is_short));
        self.0.store(short << 4 | brief, Ordering::Relaxed);
    }
}

fn counted(before: u8, is_so: bool) -> u8 {
    match is_so {
        true => (before + 1).min(MOST),
        false => before.saturating_sub(SURE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_make_a_habit_and_one_exception_does_not_end_it() {
        let turn_cost = TurnCost::default();
        let note = |times, is_so| {
            (0..times).for_each(|_| turn_cost.note(is_so, true));
            turn_cost.is_inline_cheap()
        };
        assert!(!note(0, true));
        assert!(!note(SURE - 1, true));
        assert!(note(1, true));
        assert!(!note(1, false), "what has just begun to look so is not sure");
        assert!(note(u8::MAX, true));
        assert!(note(1, false), "the system may have interrupted one");
        assert!(!note(1, false));
        assert!(!note(u8::MAX, false));
        assert!(note(SURE, true));
    }

    #[test]
    fn one_habit_does_not_touch_the_other() {
        let turn_cost = TurnCost::default();
        (0..u8::MAX).for_each(|_| turn_cost.note(false, true));
        assert!(turn_cost.is_resume_cheap() && !turn_cost.is_inline_cheap());
        (0..u8::MAX).for_each(|_| turn_cost.note(true, false));
        assert!(turn_cost.is_inline_cheap() && !turn_cost.is_resume_cheap());
    }
}
