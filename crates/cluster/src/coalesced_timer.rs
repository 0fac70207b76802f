//! A timer that is set far more often than it fires. Setting it to a later time costs one atomic load and wakes no thread.
//!
//! The runtime's timer thread fires it: deadlines of calls must expire even if the application's executor is not running.

use std::sync::atomic::{AtomicU64, Ordering};

use elastin_types::Time;

/// The time of a timer that is not set.
const NEVER: u64 = u64::MAX;

/// The timer of one executor.
pub(crate) struct CoalescedTimer {
    /// When it fires next. Wakes that were scheduled for later times are ignored when they arrive.
    fires_at: AtomicU64,
}

impl CoalescedTimer {
    pub(crate) fn new() -> Self {
        Self {
            fires_at: AtomicU64::new(NEVER),
        }
    }

    /// Makes it fire at this time or earlier. Returns true if it would have fired later: the caller must then call
    /// [`CoalescedTimer::take_due`] at this time.
    #[must_use]
    pub(crate) fn set(&self, at: Time) -> bool {
        // Loaded first, because it nearly always fires earlier anyway.
        at.0 < self.fires_at.load(Ordering::SeqCst) && at.0 < self.fires_at.fetch_min(at.0, Ordering::SeqCst)
    }

    /// Whether it is due. A due timer is reset, and fires again only after it is set.
    pub(crate) fn take_due(&self, now: Time) -> bool {
        let at = self.fires_at.load(Ordering::SeqCst);
        // A thread that sets it earlier in the meantime schedules a wake of its own.
        at <= now.0
            && self
                .fires_at
                .compare_exchange(at, NEVER, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fires_once_at_the_earliest_time_set() {
        let timer = CoalescedTimer::new();
        assert!(!timer.take_due(Time(1)), "not set");
        assert!(timer.set(Time(20)));
        assert!(!timer.set(Time(30)), "it fires earlier");
        assert!(!timer.set(Time(20)), "it fires at that time");
        assert!(timer.set(Time(10)));
        assert!(!timer.take_due(Time(9)));
        assert!(timer.take_due(Time(10)));
        assert!(!timer.take_due(Time(20)), "the later time was superseded");
        assert!(timer.set(Time(30)), "it is reset");
        assert!(timer.take_due(Time(31)));
    }
}
