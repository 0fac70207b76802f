//! State shared by all handles of a virtual clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elastin_types::Time;
use parking_lot::Mutex;

/// A task that sleeps on a clock by its own means.
pub trait Sleeps: Send + Sync {
    /// The wake-up time: [`Time`]'s largest value if nothing is due, `None` while the task is awake. The task calls
    /// [`Clock::note_sleep`](crate::Clock::note_sleep) each time it goes to sleep.
    fn asleep_until(&self) -> Option<Time>;

    /// Wakes the task after the clock was advanced: it has to read the clock again.
    fn wake(&self);
}

/// Combined state of the tasks registered with a clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SleepState {
    /// A task is awake or due.
    Awake {
        /// The task's name.
        task: String,
    },
    /// All tasks sleep.
    Asleep {
        /// The earliest wake-up time.
        until: Time,
        /// Total number of sleeps so far. If it is unchanged since the last check, no task was awake in between.
        sleep_count: u64,
    },
}

/// The offset of a virtual clock, and the tasks registered with it.
#[derive(Default)]
pub(crate) struct VirtualTime {
    skipped: AtomicU64,
    sleep_count: AtomicU64,
    registered: Mutex<Vec<Registered>>,
}

struct Registered {
    name: Arc<str>,
    sleeps: Weak<dyn Sleeps>,
}

impl VirtualTime {
    pub(crate) fn skipped(&self) -> Duration {
        Duration::from_nanos(self.skipped.load(Ordering::SeqCst))
    }

    pub(crate) fn skip(&self, by_ns: u64) {
        self.skipped.fetch_add(by_ns, Ordering::SeqCst);
        for (_, sleeps) in self.live() {
            sleeps.wake();
        }
    }

    pub(crate) fn add(&self, name: String, sleeps: Weak<dyn Sleeps>) {
        let mut registered = self.registered.lock();
        registered.retain(|task| task.sleeps.strong_count() > 0);
        registered.push(Registered {
            name: name.into(),
            sleeps,
        });
    }

    /// The live tasks. They are collected, so that dropping the last reference to one runs its drop outside the lock.
    fn live(&self) -> Vec<(Arc<str>, Arc<dyn Sleeps>)> {
        let registered = self.registered.lock();
        let live = registered.iter().filter_map(|task| {
            let sleeps = task.sleeps.upgrade()?;
            Some((Arc::clone(&task.name), sleeps))
        });
        live.collect()
    }

    /// Records that a task goes to sleep.
    pub(crate) fn note_sleep(&self) {
        self.sleep_count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn sleep_state(&self, now: Time) -> SleepState {
        // Read before the tasks: a sleep that begins meanwhile shows at the next check.
        let sleep_count = self.sleep_count.load(Ordering::SeqCst);
        let mut until = Time(u64::MAX);
        for (name, sleeps) in self.live() {
            match sleeps.asleep_until().filter(|until| *until > now) {
                Some(asleep_until) => until = until.min(asleep_until),
                None => return SleepState::Awake { task: name.to_string() },
            }
        }
        SleepState::Asleep { until, sleep_count }
    }
}

impl fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualTime")
            .field("skipped", &self.skipped())
            .finish_non_exhaustive()
    }
}
