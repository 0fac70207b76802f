//! The clock of a process.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elastin_types::Time;
use rustix::time::{ClockId, clock_gettime};

use crate::sleeper::Sleeper;
use crate::virtual_time::{SleepState, Sleeps, VirtualTime};

/// A monotonic clock that counts from its start. Clones show the same time.
///
/// It reads the system's nanoseconds directly, because converting an [`Instant`](std::time::Instant) costs more than
/// reading it.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: u64,
    /// `Some` only for a virtual clock.
    virtual_clock: Option<Arc<VirtualClock>>,
}

#[derive(Debug)]
struct VirtualClock {
    time: Arc<VirtualTime>,
    /// The member that uses this handle, for diagnostics.
    owner: String,
}

impl Clock {
    /// The latest time that a virtual clock can be advanced to: half of its range, 292 years. Adding a timeout to it
    /// stays far from the largest time, which means never.
    pub const SKIP_END: Time = Time(u64::MAX / 2);

    /// Starts a real clock.
    pub fn start() -> Self {
        Self {
            origin: monotonic(),
            virtual_clock: None,
        }
    }

    /// Starts a virtual clock: it runs like a real one and can be [advanced](Clock::skip_to).
    pub fn start_skipping() -> Self {
        let virtual_clock = VirtualClock {
            time: Arc::default(),
            owner: "the cluster".into(),
        };
        Self {
            virtual_clock: Some(Arc::new(virtual_clock)),
            ..Self::start()
        }
    }

    /// The same clock as used by `owner`: sleeping tasks registered through this handle are reported with that name.
    pub fn of(&self, owner: &str) -> Self {
        let owned = |virtual_clock: &Arc<VirtualClock>| {
            Arc::new(VirtualClock {
                time: Arc::clone(&virtual_clock.time),
                owner: owner.into(),
            })
        };
        Self {
            origin: self.origin,
            virtual_clock: self.virtual_clock.as_ref().map(owned),
        }
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Time {
        let since = monotonic() - self.origin;
        match &self.virtual_clock {
            None => Time(since),
            Some(virtual_clock) => Time(since) + virtual_clock.time.skipped(),
        }
    }

    /// Whether it is a virtual clock.
    pub fn can_skip(&self) -> bool {
        self.virtual_clock.is_some()
    }

    /// The wall clock, in milliseconds since the Unix epoch. It advances with a virtual clock.
    pub fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let skipped = self.virtual_time().map_or(Duration::ZERO, VirtualTime::skipped);
        u64::try_from((since + skipped).as_millis()).unwrap_or(u64::MAX)
    }

    /// Registers a task that sleeps on this clock. `label` names it in diagnostics.
    pub fn sleeper(&self, label: &str) -> Sleeper {
        let sleeper = Sleeper::new(self.clone());
        if let Some(state) = sleeper.registration() {
            self.register(label, state);
        }
        sleeper
    }

    /// Registers a custom sleeping task: it is woken when a virtual clock is advanced. A no-op on a real clock.
    pub fn register(&self, label: &str, sleeps: Weak<dyn Sleeps>) {
        if let Some(virtual_clock) = &self.virtual_clock {
            virtual_clock
                .time
                .add(format!("{} of {}", label, virtual_clock.owner), sleeps);
        }
    }

    /// Records that a [registered](Clock::register) task goes to sleep.
    pub fn note_sleep(&self) {
        if let Some(time) = self.virtual_time() {
            time.note_sleep();
        }
    }

    /// Advances a virtual clock to `at`, unless it is there already, and wakes all registered tasks.
    ///
    /// # Panics
    /// On a real clock, or if `at` is beyond [`Clock::SKIP_END`].
    pub fn skip_to(&self, at: Time) {
        assert!(at <= Self::SKIP_END, "a clock is not advanced beyond `Clock::SKIP_END`");
        let time = self.virtual_time().expect("only a virtual clock can be advanced");
        time.skip(at.0.saturating_sub(self.now().0));
    }

    /// A task that is awake or due, if there is one; else the earliest wake-up time.
    ///
    /// # Panics
    /// On a real clock.
    pub fn sleep_state(&self) -> SleepState {
        let time = self.virtual_time().expect("only a virtual clock tracks sleeping tasks");
        time.sleep_state(self.now())
    }

    pub(crate) fn virtual_time(&self) -> Option<&VirtualTime> {
        self.virtual_clock.as_ref().map(|virtual_clock| &*virtual_clock.time)
    }
}

/// The system's monotonic clock, in nanoseconds.
#[inline]
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero and its range is five centuries, so nothing is negative or overflows.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
