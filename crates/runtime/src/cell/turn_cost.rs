//! Estimated cost of an actor's turns, learned from measured turns.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::tuning::{COST_COUNT_MAX, COST_ESTABLISHED};

/// Estimated cost of an actor's turns, as a hint. One nibble counts turns cheap enough to run inline, the other turns
/// cheap enough for their caller to resume.
#[derive(Default)]
pub(crate) struct TurnCost(AtomicU8);

impl TurnCost {
    /// Whether turns are cheap enough for the sender of a one-way message to run them inline.
    #[inline]
    pub(crate) fn is_inline_cheap(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 0xf >= COST_ESTABLISHED
    }

    /// Whether turns are cheap enough for their caller to resume them.
    #[inline]
    pub(crate) fn is_resume_cheap(&self) -> bool {
        self.0.load(Ordering::Relaxed) >> 4 >= COST_ESTABLISHED
    }

    /// Records a measured turn.
    pub(crate) fn record(&self, inline_cheap: bool, resume_cheap: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let (inline, resume) = (counted(before & 0xf, inline_cheap), counted(before >> 4, resume_cheap));
        self.0.store(resume << 4 | inline, Ordering::Relaxed);
    }
}

fn counted(before: u8, cheap: bool) -> u8 {
    match cheap {
        true => (before + 1).min(COST_COUNT_MAX),
        false => before.saturating_sub(COST_ESTABLISHED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_established_estimate_survives_one_exception() {
        let turn_cost = TurnCost::default();
        let note = |times, is_so| {
            (0..times).for_each(|_| turn_cost.record(is_so, true));
            turn_cost.is_inline_cheap()
        };
        assert!(!note(0, true));
        assert!(!note(COST_ESTABLISHED - 1, true));
        assert!(note(1, true));
        assert!(!note(1, false), "a new estimate does not survive an exception");
        assert!(note(u8::MAX, true));
        assert!(note(1, false), "the system may have interrupted one turn");
        assert!(!note(1, false));
        assert!(!note(u8::MAX, false));
        assert!(note(COST_ESTABLISHED, true));
    }

    #[test]
    fn the_two_estimates_are_independent() {
        let turn_cost = TurnCost::default();
        (0..u8::MAX).for_each(|_| turn_cost.record(false, true));
        assert!(turn_cost.is_resume_cheap() && !turn_cost.is_inline_cheap());
        (0..u8::MAX).for_each(|_| turn_cost.record(true, false));
        assert!(turn_cost.is_inline_cheap() && !turn_cost.is_resume_cheap());
    }
}
