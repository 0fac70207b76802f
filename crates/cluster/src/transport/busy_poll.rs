//! Whether a thread that waits for mail looks for it again and again for a moment before it sleeps.
//!
//! To sleep and to be woken takes tens of microseconds, most of them not on any core. If mail comes sooner than that, to look for
//! it is quicker and takes hardly more time of the processor; if it does not, looking is a waste. Which of both it is shows: after a
//! moment in vain the next ones are left out, more and more of them, until one pays again.
//!
//! Between two looks whoever else wants the core has it. Who computes there may keep it for milliseconds, much longer than being
//! woken would take, however unimportant it is: then nobody gives way for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elastin_runtime::AdaptiveBackoff;

/// How long it looks before it sleeps: twice as long as it takes to be woken. Who waits for the next call of somebody who calls
/// again at once finds it in less, and so does who waits for the first replies to many calls.
const BUSY_POLL_MAX: Duration = Duration::from_micros(100);

/// One look takes a microsecond or two. What takes longer than this was somebody else's time on the same core.
const OWN_TIME_MAX: Duration = Duration::from_micros(10);

/// Whoever keeps the core for longer than this computes. Those with whom mail is exchanged have less to do between two waits.
const YIELD_COST_MAX: Duration = Duration::from_micros(100);

/// Nobody gives way for so many times as long as the core was lent: what is lost like this stays below two per cent.
const NO_YIELD_FACTOR: u32 = 64;

/// But not for longer than this, in case the process itself was stopped.
const NO_YIELD_MAX: Duration = Duration::from_secs(1);

/// How much of the time that passed between two looks was this thread's.
fn own_time(passed: Duration) -> Duration {
    match passed <= OWN_TIME_MAX {
        true => passed,
        false => Duration::ZERO,
    }
}

/// What was learnt about looking for one kind of mail.
#[derive(Default)]
pub(super) struct BusyPoller {
    backoff: AdaptiveBackoff,
    /// Nobody gives way before this.
    kept_until: Option<Instant>,
}

impl BusyPoller {
    /// Looks for a moment, unless that is most likely a waste. `busy_poll` is to say whether there is something, and so does this.
    pub(super) fn busy_poll(&mut self, mut busy_poll: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        if !self.begins() {
            return false;
        }
        let gives_way = self.gives_way(began);
        let (mut looked_at, mut busy_poll_time) = (began, Duration::ZERO);
        let found = loop {
            if busy_poll() {
                break true;
            }
            match gives_way {
                // Whoever else wants this core has it first.
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
            let now = Instant::now();
            let passed = now.duration_since(looked_at);
            busy_poll_time += own_time(passed);
            looked_at = now;
            if gives_way {
                self.lent(now, passed);
            }
            if now.duration_since(began) > BUSY_POLL_MAX {
                break busy_poll();
            }
        };
        // More than 500 years do not come to pass.
        BUSY_POLL_NS.fetch_add(busy_poll_time.as_nanos() as u64, Ordering::Relaxed);
        self.ended(found);
        found
    }

    /// Whether it should look now.
    fn begins(&mut self) -> bool {
        !DISABLED.load(Ordering::Relaxed) && !self.backoff.should_skip()
    }

    /// Whether others may have the core between two looks.
    fn gives_way(&self, now: Instant) -> bool {
        self.kept_until.is_none_or(|until| now >= until)
    }

    /// Others had the core for so long.
    fn lent(&mut self, now: Instant, time: Duration) {
        if time > YIELD_COST_MAX {
            self.kept_until = Some(now + time.saturating_mul(NO_YIELD_FACTOR).min(NO_YIELD_MAX));
        }
    }

    /// It has looked, and found something or not.
    fn ended(&mut self, found: bool) {
        match found {
            true => self.backoff.success(),
            false => self.backoff.failure(),
        }
    }
}

/// Nobody in this process looks.
static DISABLED: AtomicBool = AtomicBool::new(false);

/// For how long this process has looked, in nanoseconds.
static BUSY_POLL_NS: AtomicU64 = AtomicU64::new(0);

/// Nobody in this process looks from now on: it has too little of the processor for that.
pub(super) fn disable() {
    DISABLED.store(true, Ordering::Relaxed);
}

/// The processor's time that this process has spent on looking, and that could have been anybody's.
pub(crate) fn busy_poll_time() -> Duration {
    Duration::from_nanos(BUSY_POLL_NS.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many of the next hundred waits begin with a look, if each look ends like this.
    fn looks(busy_poller: &mut BusyPoller, found: bool) -> usize {
        let busy_poll_time = (0..100).filter(|_| {
            let begins = busy_poller.begins();
            if begins {
                busy_poller.ended(found);
            }
            begins
        });
        busy_poll_time.count()
    }

    #[test]
    fn who_finds_nothing_sleeps_and_who_finds_something_looks() {
        let mut busy_poller = BusyPoller::default();
        assert_eq!(looks(&mut busy_poller, true), 100);
        assert!(looks(&mut busy_poller, false) < 10);
        looks(&mut busy_poller, true);
        assert_eq!(looks(&mut busy_poller, true), 100, "once it pays again");
    }

    #[test]
    fn nobody_gives_way_for_a_while_to_who_computes() {
        let (mut busy_poller, now) = (BusyPoller::default(), Instant::now());
        busy_poller.lent(now, YIELD_COST_MAX);
        assert!(busy_poller.gives_way(now), "that was a short while");
        busy_poller.lent(now, MS);
        assert!(!busy_poller.gives_way(now + NO_YIELD_FACTOR * MS - MS));
        assert!(busy_poller.gives_way(now + NO_YIELD_FACTOR * MS));
        busy_poller.lent(now, Duration::from_secs(3600));
        assert!(busy_poller.gives_way(now + NO_YIELD_MAX));
    }

    #[test]
    fn it_looks_until_there_is_something_and_not_for_long() {
        let mut busy_poller = BusyPoller::default();
        let mut left = 3;
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
    fn time_of_others_is_not_counted() {
        assert_eq!(own_time(Duration::from_micros(2)), Duration::from_micros(2));
        assert_eq!(own_time(Duration::from_millis(2)), Duration::ZERO);
    }
}
