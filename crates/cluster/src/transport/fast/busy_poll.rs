//! Adaptive busy-polling: a thread that waits for frames polls for a short time before it parks.
//!
//! Parking and waking costs tens of microseconds, mostly off any core. If frames arrive sooner than that, busy-polling is faster
//! and takes hardly more CPU time; if they do not, it is a waste. An adaptive backoff decides: each failed attempt skips more of
//! the next ones, until one succeeds.
//!
//! The thread yields its core between two polls. A compute-bound thread may keep the core for milliseconds, much longer than a
//! wake takes. The thread then spins without yielding for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elastin_runtime::AdaptiveBackoff;

use crate::tuning::{BUSY_POLL_MAX, NO_YIELD_FACTOR, NO_YIELD_MAX, OWN_TIME_MAX, YIELD_COST_MAX};

/// This thread's own share of the time between two polls.
fn own_time(passed: Duration) -> Duration {
    match passed <= OWN_TIME_MAX {
        true => passed,
        false => Duration::ZERO,
    }
}

/// The busy-poll state of one source of frames.
#[derive(Default)]
pub(super) struct BusyPoller {
    backoff: AdaptiveBackoff,
    /// No yields before this time.
    no_yield_until: Option<Instant>,
}

impl BusyPoller {
    /// Calls `poll` until it returns true or time is up, unless the backoff skips it. Returns whether `poll` succeeded.
    pub(super) fn busy_poll(&mut self, mut poll: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        if !self.should_poll() {
            return false;
        }
        let yields = self.should_yield(began);
        let (mut polled_at, mut busy_poll_time) = (began, Duration::ZERO);
        let found = loop {
            if poll() {
                break true;
            }
            match yields {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            let now = Instant::now();
            let passed = now.duration_since(polled_at);
            busy_poll_time += own_time(passed);
            polled_at = now;
            if yields {
                self.record_yield(now, passed);
            }
            if now.duration_since(began) > BUSY_POLL_MAX {
                break poll();
            }
        };
        // 64 bits of nanoseconds last for more than 500 years.
        BUSY_POLL_NS.fetch_add(busy_poll_time.as_nanos() as u64, Ordering::Relaxed);
        self.record(found);
        found
    }

    /// Whether to busy-poll now.
    fn should_poll(&mut self) -> bool {
        !self.backoff.should_skip()
    }

    /// Whether to yield the core between two polls.
    fn should_yield(&self, now: Instant) -> bool {
        self.no_yield_until.is_none_or(|until| now >= until)
    }

    /// Records the duration of a yield.
    fn record_yield(&mut self, now: Instant, time: Duration) {
        if time > YIELD_COST_MAX {
            self.no_yield_until = Some(now + time.saturating_mul(NO_YIELD_FACTOR).min(NO_YIELD_MAX));
        }
    }

    /// Records the result of a busy-poll.
    fn record(&mut self, found: bool) {
        match found {
            true => self.backoff.success(),
            false => self.backoff.failure(),
        }
    }
}

/// The time that this process has spent on busy-polling, in nanoseconds.
static BUSY_POLL_NS: AtomicU64 = AtomicU64::new(0);

/// The CPU time that this process has spent on busy-polling.
pub(crate) fn busy_poll_time() -> Duration {
    Duration::from_nanos(BUSY_POLL_NS.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many of the next hundred waits busy-poll, if each attempt ends like this.
    fn attempts(busy_poller: &mut BusyPoller, found: bool) -> usize {
        let attempts = (0..100).filter(|_| {
            let polls = busy_poller.should_poll();
            if polls {
                busy_poller.record(found);
            }
            polls
        });
        attempts.count()
    }

    #[test]
    fn failures_back_off_and_successes_keep_polling() {
        let mut busy_poller = BusyPoller::default();
        assert_eq!(attempts(&mut busy_poller, true), 100);
        assert!(attempts(&mut busy_poller, false) < 10);
        attempts(&mut busy_poller, true);
        assert_eq!(attempts(&mut busy_poller, true), 100, "after a success");
    }

    #[test]
    fn a_costly_yield_suppresses_yields_for_a_while() {
        let (mut busy_poller, now) = (BusyPoller::default(), Instant::now());
        busy_poller.record_yield(now, YIELD_COST_MAX);
        assert!(busy_poller.should_yield(now), "a cheap yield");
        busy_poller.record_yield(now, MS);
        assert!(!busy_poller.should_yield(now + NO_YIELD_FACTOR * MS - MS));
        assert!(busy_poller.should_yield(now + NO_YIELD_FACTOR * MS));
        busy_poller.record_yield(now, Duration::from_secs(3600));
        assert!(busy_poller.should_yield(now + NO_YIELD_MAX));
    }

    #[test]
    fn it_polls_until_success_or_timeout() {
        let mut busy_poller = BusyPoller::default();
        // However busy the machine is, there are two polls: at first, and when the time is up.
        let mut left = 2;
        busy_poller.busy_poll(|| {
            left -= 1;
            left == 0
        });
        assert_eq!(left, 0);
        let began = Instant::now();
        busy_poller.busy_poll(|| false);
        assert!(began.elapsed() >= BUSY_POLL_MAX);
    }

    #[test]
    fn preempted_time_is_not_counted() {
        assert_eq!(own_time(Duration::from_micros(2)), Duration::from_micros(2));
        assert_eq!(own_time(Duration::from_millis(2)), Duration::ZERO);
    }
}
