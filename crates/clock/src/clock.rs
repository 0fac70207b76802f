//! What the time is.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elastin_types::Time;
use rustix::time::{ClockId, clock_gettime};

use crate::sleeper::Sleeper;
use crate::virtual_time::{Skips, SleepState, Sleeps};

/// A monotonic clock, from when it was started. Clones show the same time.
///
/// Read as the nanoseconds that the system gives, because an [`Instant`](std::time::Instant) takes longer to take apart than
/// to read.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: u64,
    /// Only of a clock that a test moves ahead.
    skipping: Option<Arc<Skipping>>,
}

#[derive(Debug)]
struct Skipping {
    skips: Arc<Skips>,
    /// Whose clock it is.
    whose: String,
}

impl Clock {
    /// How far a clock can be moved ahead: half of what it can show, 292 years. Whoever adds a limit to the time stays far from
    /// the largest time like that, which stands for never.
    pub const SKIP_END: Time = Time(u64::MAX / 2);

    /// A clock that shows the time since now.
    pub fn start() -> Self {
        Self {
            origin: monotonic(),
            skipping: None,
        }
    }

    /// The same, but it can be [moved ahead](Clock::skip_to).
    pub fn start_skipping() -> Self {
        let skipping = Skipping {
            skips: Arc::default(),
            whose: "the cluster".into(),
        };
        Self {
            skipping: Some(Arc::new(skipping)),
            ..Self::start()
        }
    }

    /// The same clock, in somebody's hands: those who sleep on it are reported by this name.
    pub fn of(&self, whose: &str) -> Self {
        let in_hands = |skipping: &Arc<Skipping>| {
            Arc::new(Skipping {
                skips: Arc::clone(&skipping.skips),
                whose: whose.into(),
            })
        };
        Self {
            origin: self.origin,
            skipping: self.skipping.as_ref().map(in_hands),
        }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Time {
        let since = monotonic() - self.origin;
        match &self.skipping {
            None => Time(since),
            Some(skipping) => Time(since) + skipping.skips.skipped(),
        }
    }

    /// Whether a test may move it ahead.
    pub fn can_skip(&self) -> bool {
        self.skipping.is_some()
    }

    /// The wall clock, in milliseconds since the Unix epoch. It moves ahead with this clock.
    pub fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let skipped = self.skips().map_or(Duration::ZERO, Skips::skipped);
        u64::try_from((since + skipped).as_millis()).unwrap_or(u64::MAX)
    }

    /// A place to sleep on this clock, for a task.
    pub fn sleeper(&self, what: &str) -> Sleeper {
        let sleeper = Sleeper::new(self.clone());
        if let Some(bed) = sleeper.bed() {
            self.register(what, bed);
        }
        sleeper
    }

    /// Makes somebody known who sleeps on this clock: it is woken when time is moved ahead. A clock that can't be moved
    /// wants to know nobody.
    pub fn register(&self, what: &str, sleeps: Weak<dyn Sleeps>) {
        if let Some(skipping) = &self.skipping {
            skipping.skips.add(format!("{} of {}", what, skipping.whose), sleeps);
        }
    }

    /// Somebody who was [registered](Clock::register) goes to sleep.
    pub fn note_sleep(&self) {
        if let Some(skips) = self.skips() {
            skips.note_sleep();
        }
    }

    /// Moves the clock ahead to a time, unless it has come there, and wakes all who sleep on it.
    ///
    /// # Panics
    /// If it can't be moved, or not so far: see [`Clock::SKIP_END`].
    pub fn skip_to(&self, at: Time) {
        assert!(at <= Self::SKIP_END, "a clock is not moved beyond its end");
        let skips = self.skips().expect("only a clock that was started for it is moved");
        skips.skip(at.0.saturating_sub(self.now().0));
    }

    /// Who is awake, or has something due, if anybody is; else when the next one is to wake up.
    ///
    /// # Panics
    /// If it can't be moved.
    pub fn sleep_state(&self) -> SleepState {
        let skips = self.skips().expect("only of a clock that can be moved this is known");
        skips.sleep_state(self.now())
    }

    pub(crate) fn skips(&self) -> Option<&Skips> {
        self.skipping.as_ref().map(|skipping| &*skipping.skips)
    }
}

/// The system's monotonic clock, in nanoseconds.
#[inline]
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // It starts at zero and lasts for five centuries, so neither part is negative and nothing overflows.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
