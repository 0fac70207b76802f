//! How a task sleeps on a clock.

use std::sync::{Arc, Weak};

use elastin_types::Time;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::virtual_time::Sleeps;

/// Where a task sleeps on a clock, one nap at a time.
///
/// ```
/// # use elastin_clock::Clock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = Clock::start_skipping();
/// let sleeper = clock.sleeper("an example");
/// let tomorrow = clock.now() + Duration::from_secs(24 * 3600);
/// clock.skip_to(tomorrow);
/// sleeper.sleep_until(Some(tomorrow)).await;
/// # }
/// ```
pub struct Sleeper {
    clock: Clock,
    /// Only on a clock that is moved ahead.
    bed: Option<Arc<Bed>>,
}

/// What the clock sees of a sleeper.
struct Bed {
    asleep_until: Mutex<Option<Time>>,
    woken: Notify,
}

/// Gets up again, also if the nap is given up because something else came first.
struct Nap<'a>(Option<&'a Bed>);

impl Sleeper {
    pub(crate) fn new(clock: Clock) -> Self {
        let bed = clock.skips().map(|_| {
            Arc::new(Bed {
                asleep_until: Mutex::new(None),
                woken: Notify::new(),
            })
        });
        Self { clock, bed }
    }

    pub(crate) fn bed(&self) -> Option<Weak<dyn Sleeps>> {
        let bed = Arc::downgrade(self.bed.as_ref()?);
        Some(bed)
    }

    /// The clock that it sleeps on.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sleeps until a time has come; for ever without one.
    pub async fn sleep_until(&self, at: Option<Time>) {
        let _nap = self.lie_down(at);
        let Some(at) = at else {
            return std::future::pending().await;
        };
        loop {
            let left = at.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.woken() => {}
            }
        }
    }

    fn lie_down(&self, at: Option<Time>) -> Nap<'_> {
        if let Some(bed) = &self.bed {
            *bed.asleep_until.lock() = Some(at.unwrap_or(Time(u64::MAX)));
            self.clock.note_sleep();
        }
        Nap(self.bed.as_deref())
    }

    async fn woken(&self) {
        match &self.bed {
            Some(bed) => bed.woken.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        if let Some(bed) = self.0 {
            *bed.asleep_until.lock() = None;
        }
    }
}

impl Sleeps for Bed {
    fn asleep_until(&self) -> Option<Time> {
        *self.asleep_until.lock()
    }

    fn wake(&self) {
        self.woken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SleepState;

    const HOUR: Duration = Duration::from_secs(3600);

    /// No machine is so slow.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn who_sleeps_for_an_hour_wakes_up_when_an_hour_is_skipped() {
        let clock = Clock::start_skipping().of("server-1");
        let (began, wall_ms) = (clock.now(), clock.wall_ms());
        let sleeper = clock.sleeper("the test");
        let who = "the test of server-1".to_owned();
        assert_eq!(clock.sleep_state(), SleepState::Awake { who: who.clone() });
        let until = began + HOUR;
        let sleeping = tokio::spawn(async move { sleeper.sleep_until(Some(until)).await });
        tokio::task::yield_now().await;
        assert_eq!(clock.sleep_state(), SleepState::Asleep { until, naps: 1 });
        clock.skip_to(began + HOUR / 2);
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        clock.skip_to(until);
        assert_eq!(clock.sleep_state(), SleepState::Awake { who }, "it is due");
        tokio::time::timeout(WAIT_MAX, sleeping).await.unwrap().unwrap();
        assert!(clock.wall_ms() >= wall_ms + 3_600_000);
        let nobody = Time(u64::MAX);
        assert_eq!(clock.sleep_state(), SleepState::Asleep { until: nobody, naps: 1 });
    }

    #[tokio::test]
    async fn a_clock_that_is_not_moved_knows_nobody() {
        let clock = Clock::start();
        let sleeper = clock.sleeper("the test");
        let soon = clock.now() + Duration::from_millis(2);
        sleeper.sleep_until(Some(soon)).await;
        assert!(clock.now() >= soon);
        assert!(sleeper.bed().is_none());
    }
}
