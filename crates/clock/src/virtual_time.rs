//! What those know together who share a clock that is moved ahead.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elastin_types::Time;
use parking_lot::Mutex;

/// Somebody who sleeps on a clock, in whatever way.
pub trait Sleeps: Send + Sync {
    /// Until when it sleeps; [`Time`]'s largest value if nothing is due, `None` while it is awake. Each time it goes to sleep
    /// it tells its [`Clock::note_sleep`](crate::Clock::note_sleep).
    fn asleep_until(&self) -> Option<Time>;

    /// Time was moved ahead: it has to look at the clock again.
    fn wake(&self);
}

/// How those are who sleep on a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SleepState {
    /// Somebody is awake, or should be.
    Awake {
        /// Who it is.
        who: String,
    },
    /// All sleep.
    Asleep {
        /// When the first of them is to wake up.
        until: Time,
        /// How often anybody has gone to sleep so far: if it is the same as before, nobody was awake in between.
        naps: u64,
    },
}

/// How far a clock was moved ahead, and who sleeps on it.
#[derive(Default)]
pub(crate) struct Skips {
    skipped: AtomicU64,
    naps: AtomicU64,
    sleepers: Mutex<Vec<Known>>,
}

struct Known {
    who: Arc<str>,
    sleeps: Weak<dyn Sleeps>,
}

impl Skips {
    pub(crate) fn skipped(&self) -> Duration {
        Duration::from_nanos(self.skipped.load(Ordering::SeqCst))
    }

    pub(crate) fn skip(&self, by_ns: u64) {
        self.skipped.fetch_add(by_ns, Ordering::SeqCst);
        for (_, sleeps) in self.all() {
            sleeps.wake();
        }
    }

    pub(crate) fn add(&self, who: String, sleeps: Weak<dyn Sleeps>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.retain(|known| known.sleeps.strong_count() > 0);
        sleepers.push(Known {
            who: who.into(),
            sleeps,
        });
    }

    /// All who are there. They are looked at without the lock: letting go of the last one may run any code.
    fn all(&self) -> Vec<(Arc<str>, Arc<dyn Sleeps>)> {
        let sleepers = self.sleepers.lock();
        let present = sleepers.iter().filter_map(|known| {
            let sleeps = known.sleeps.upgrade()?;
            Some((Arc::clone(&known.who), sleeps))
        });
        present.collect()
    }

    /// Somebody has gone to sleep.
    pub(crate) fn note_sleep(&self) {
        self.naps.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn sleep_state(&self, now: Time) -> SleepState {
        // Read first: a nap that begins meanwhile shows next time.
        let naps = self.naps.load(Ordering::SeqCst);
        let mut until = Time(u64::MAX);
        for (who, sleeps) in self.all() {
            match sleeps.asleep_until().filter(|until| *until > now) {
                Some(asleep_until) => until = until.min(asleep_until),
                None => return SleepState::Awake { who: who.to_string() },
            }
        }
        SleepState::Asleep { until, naps }
    }
}

impl fmt::Debug for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skips")
            .field("skipped", &self.skipped())
            .finish_non_exhaustive()
    }
}
