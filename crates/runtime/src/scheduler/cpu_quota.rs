//! The CPU share of the process: a token bucket on the process's CPU clock.
//!
//! Tokens are CPU time. They come in at the configured rate and go out as the process uses CPU. Workers look before a visit to
//! an actor, and pause while there are none.

use std::time::Duration;

use elastin_types::Time;
use parking_lot::Mutex;

/// How often the CPU clock is read at most: a read is a system call, and shorter pauses than this can't be slept anyway.
const READ_EVERY: Duration = Duration::from_millis(1);

/// How long a worker pauses at most before it looks again, so that pauses stay smooth.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// How much unused time may be saved up, as the time in which it comes in.
const BURST: Duration = Duration::from_millis(10);

/// The bucket.
#[derive(Debug)]
pub(crate) struct CpuQuota {
    state: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// In cores; `None` when there is no limit.
    cores: Option<f64>,
    read: Option<(Time, Duration)>,
    /// In seconds of CPU time; below zero when more was used than came in.
    tokens: f64,
}

impl CpuQuota {
    pub(crate) fn new(cores: Option<f64>) -> Self {
        Self {
            state: Mutex::new(Bucket {
                cores,
                read: None,
                tokens: 0.0,
            }),
        }
    }

    /// The share, in cores.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.state.lock().cores
    }

    /// How long the caller has to pause before it may use the CPU. `cpu` reads the process's CPU clock.
    pub(crate) fn pause(&self, now: Time, cpu: impl FnOnce() -> Duration) -> Option<Duration> {
        self.state.lock().pause(now, cpu)
    }
}

impl Bucket {
    fn pause(&mut self, now: Time, cpu: impl FnOnce() -> Duration) -> Option<Duration> {
        let cores = self.cores?;
        // A thread may have lost its core after it looked at the clock, and come later than one that looked after it.
        let now = self.read.map_or(now, |(at, _)| now.max(at));
        if let Some((at, _)) = self.read
            && self.tokens >= 0.0
            && now.since(at) < READ_EVERY
        {
            return None;
        }
        let used = cpu();
        if let Some((at, used_before)) = self.read {
            let income = now.since(at).as_secs_f64() * cores;
            let spent = used.saturating_sub(used_before).as_secs_f64();
            self.tokens = (self.tokens + income - spent).min(BURST.as_secs_f64() * cores);
        }
        self.read = Some((now, used));
        if self.tokens >= 0.0 {
            return None;
        }
        let wait = Duration::from_secs_f64(-self.tokens / cores);
        // A pause shorter than the time between two reads would only be a busy wait.
        Some(wait.clamp(READ_EVERY, PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_thread_that_comes_late_with_its_time_brings_nothing_in_twice() {
        let share = CpuQuota::new(Some(0.5));
        let at = |ms: u32| Time::default() + ms * MS;
        assert_eq!(share.pause(at(0), || Duration::ZERO), None);
        for ten in 1..=10 {
            // It uses all that comes in, and a little more from the beginning.
            let used = ten * 5 * MS + MS;
            assert!(share.pause(at(ten * 10), || used).is_some(), "after {ten}0 ms");
            // This one has read the clock, then lost its core, and comes after the other.
            assert!(share.pause(at(ten * 10 - 9), || used).is_some(), "after {ten}0 ms");
        }
    }

    /// Runs a process that uses all it may for a second; gives the CPU time it got and its longest pause.
    fn run(cores: f64, turn: Duration) -> (Duration, Duration) {
        let share = CpuQuota::new(Some(cores));
        let (mut now, mut used, mut longest) = (Time::ZERO, Duration::ZERO, Duration::ZERO);
        while now < Time::ZERO + MS * 1000 {
            match share.pause(now, || used) {
                Some(pause) => {
                    longest = longest.max(pause);
                    now = now + pause;
                }
                None => {
                    now = now + turn;
                    used += turn;
                }
            }
        }
        (used, longest)
    }

    #[test]
    fn a_busy_process_gets_its_share_in_short_pauses() {
        for cores in [0.1, 0.3, 0.9] {
            let (used, longest) = run(cores, MS / 10);
            let got = used.as_secs_f64();
            assert!((got - cores).abs() < 0.02, "{cores} cores gave {got}");
            assert!(longest <= PAUSE_MAX, "{longest:?}");
        }
    }

    #[test]
    fn long_turns_are_paid_back() {
        let (used, longest) = run(0.3, MS * 40);
        assert!((used.as_secs_f64() - 0.3).abs() < 0.05, "{used:?}");
        assert!(longest <= PAUSE_MAX);
    }

    #[test]
    fn without_a_limit_nobody_pauses_and_no_clock_is_read() {
        let share = CpuQuota::new(None);
        assert_eq!(share.pause(Time(1), || panic!("the clock was read")), None);
    }
}
