//! What an actor's turns are like, as far as is known from those that were measured.

use std::sync::atomic::{AtomicU8, Ordering};

/// How many measured turns were so, one after another, before it counts.
const SURE: u8 = 4;

/// Twice that much is remembered, so that one turn which was interrupted by the system does not count.
const MOST: u8 = 2 * SURE;

/// Whether an actor's turns are like this. Only a hint.
pub(crate) struct Habit(AtomicU8);

impl Habit {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Whether turns are like this, as far as is known.
    #[inline]
    pub(crate) fn is_sure(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= SURE
    }

    /// A turn was measured.
    pub(crate) fn note(&self, is_so: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = match is_so {
            true => (before + 1).min(MOST),
            false => before.saturating_sub(SURE),
        };
        self.0.store(after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_make_a_habit_and_one_exception_does_not_end_it() {
        let habit = Habit::new();
        let note = |times, is_so| {
            (0..times).for_each(|_| habit.note(is_so));
            habit.is_sure()
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
}
