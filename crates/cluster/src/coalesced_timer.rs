//! An timer clock that is set far more often than it rings: setting it later costs an atomic operation and wakes nobody.
//!
//! It rings by the runtime's timers, which have a thread of their own: the deadlines of calls must pass even if nobody drives
//! the tasks of the application.

use std::sync::atomic::{AtomicU64, Ordering};

use elastin_types::Time;

/// No time at all.
const NEVER: u64 = u64::MAX;

/// The timer clock of one executor.
pub(crate) struct CoalescedTimer {
    /// When it rings next. What was set for later stays set, and is ignored when its time comes.
    rings_at: AtomicU64,
}

impl CoalescedTimer {
    pub(crate) fn new() -> Self {
        Self {
            rings_at: AtomicU64::new(NEVER),
        }
    }

    /// Wants it to ring at this time at the latest. True if it would not have: then [`CoalescedTimer::has_rung`] is to be asked at this
    /// time.
    #[must_use]
    pub(crate) fn set(&self, at: Time) -> bool {
        // Looked at before it is changed, because nearly always it rings earlier anyway.
        at.0 < self.rings_at.load(Ordering::SeqCst) && at.0 < self.rings_at.fetch_min(at.0, Ordering::SeqCst)
    }

    /// Whether it is time. If so, it does not ring again before it is set again.
    pub(crate) fn has_rung(&self, now: Time) -> bool {
        let at = self.rings_at.load(Ordering::SeqCst);
        // Whoever sets it earlier meanwhile asks again.
        at <= now.0
            && self
                .rings_at
                .compare_exchange(at, NEVER, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_and_at_the_earliest_time_that_was_set() {
        let timer = CoalescedTimer::new();
        assert!(!timer.has_rung(Time(1)), "it was not set");
        assert!(timer.set(Time(20)));
        assert!(!timer.set(Time(30)), "it rings before");
        assert!(!timer.set(Time(20)), "it rings then");
        assert!(timer.set(Time(10)));
        assert!(!timer.has_rung(Time(9)));
        assert!(timer.has_rung(Time(10)));
        assert!(
            !timer.has_rung(Time(20)),
            "what was set for later is not wanted any more"
        );
        assert!(timer.set(Time(30)), "until it is set again");
        assert!(timer.has_rung(Time(31)));
    }
}
