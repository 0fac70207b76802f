//! Sleeping of a task on a clock.

use std::sync::{Arc, Weak};

use elastin_types::Time;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::virtual_time::Sleeps;

/// A task's handle for sleeping on a clock, one sleep at a time.
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
    /// `Some` only on a virtual clock.
    state: Option<Arc<SleeperState>>,
}

/// The part of a sleeper that is registered with the clock.
struct SleeperState {
    asleep_until: Mutex<Option<Time>>,
    woken: Notify,
}

/// Marks the task as awake on drop, even if the sleep is cancelled.
struct SleepGuard<'a>(Option<&'a SleeperState>);

impl Sleeper {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = clock.virtual_time().map(|_| {
            Arc::new(SleeperState {
                asleep_until: Mutex::new(None),
                woken: Notify::new(),
            })
        });
        Self { clock, state }
    }

    pub(crate) fn registration(&self) -> Option<Weak<dyn Sleeps>> {
        let state = Arc::downgrade(self.state.as_ref()?);
        Some(state)
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sleeps until `at`; forever if it is `None`.
    pub async fn sleep_until(&self, at: Option<Time>) {
        let _guard = self.begin_sleep(at);
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

    fn begin_sleep(&self, at: Option<Time>) -> SleepGuard<'_> {
        if let Some(state) = &self.state {
            *state.asleep_until.lock() = Some(at.unwrap_or(Time(u64::MAX)));
            self.clock.note_sleep();
        }
        SleepGuard(self.state.as_deref())
    }

    async fn woken(&self) {
        match &self.state {
            Some(state) => state.woken.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for SleepGuard<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            *state.asleep_until.lock() = None;
        }
    }
}

impl Sleeps for SleeperState {
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

    /// Generous limit, so that a slow machine does not fail the test.
    const WAIT_MAX: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn sleeping_task_wakes_when_the_clock_is_advanced() {
        let clock = Clock::start_skipping().of("server-1");
        let (began, wall_ms) = (clock.now(), clock.wall_ms());
        let sleeper = clock.sleeper("the test");
        let awake = SleepState::Awake {
            task: "the test of server-1".to_owned(),
        };
        assert_eq!(clock.sleep_state(), awake);
        let until = began + HOUR;
        let sleeping = tokio::spawn(async move { sleeper.sleep_until(Some(until)).await });
        tokio::task::yield_now().await;
        assert_eq!(clock.sleep_state(), SleepState::Asleep { until, sleep_count: 1 });
        clock.skip_to(began + HOUR / 2);
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        clock.skip_to(until);
        assert_eq!(clock.sleep_state(), awake, "the task is due");
        tokio::time::timeout(WAIT_MAX, sleeping).await.unwrap().unwrap();
        assert!(clock.wall_ms() >= wall_ms + 3_600_000);
        let never = Time(u64::MAX);
        assert_eq!(
            clock.sleep_state(),
            SleepState::Asleep {
                until: never,
                sleep_count: 1
            }
        );
    }

    #[tokio::test]
    async fn real_clock_registers_no_tasks() {
        let clock = Clock::start();
        let sleeper = clock.sleeper("the test");
        let until = clock.now() + Duration::from_millis(2);
        sleeper.sleep_until(Some(until)).await;
        assert!(clock.now() >= until);
        assert!(sleeper.registration().is_none());
    }
}
