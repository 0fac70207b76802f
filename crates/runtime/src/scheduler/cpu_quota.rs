//! The CPU quota of the process: a token bucket on the process's CPU clock.
//!
//! Tokens are CPU time. They accrue at the configured rate and are spent as the process uses CPU. Workers check before
//! each batch and pause while the bucket is empty.

use std::time::Duration;

use elastin_types::Time;
use parking_lot::Mutex;

use crate::tuning::{CPU_READ_EVERY, QUOTA_BURST, QUOTA_PAUSE_MAX};

/// The token bucket.
#[derive(Debug)]
pub(crate) struct CpuQuota {
    state: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// In cores; `None` without a limit.
    cores: Option<f64>,
    read: Option<(Time, Duration)>,
    /// In seconds of CPU time; negative after overuse.
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

    /// The quota, in cores.
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
        // A preempted thread may arrive with an older time than the last one seen.
        let now = self.read.map_or(now, |(at, _)| now.max(at));
        if let Some((at, _)) = self.read
            && self.tokens >= 0.0
            && now.since(at) < CPU_READ_EVERY
        {
            return None;
        }
        let used = cpu();
        if let Some((at, used_before)) = self.read {
            let income = now.since(at).as_secs_f64() * cores;
            let spent = used.saturating_sub(used_before).as_secs_f64();
            self.tokens = (self.tokens + income - spent).min(QUOTA_BURST.as_secs_f64() * cores);
        }
        self.read = Some((now, used));
        if self.tokens >= 0.0 {
            return None;
        }
        let wait = Duration::from_secs_f64(-self.tokens / cores);
        // A pause shorter than the read interval would amount to a busy wait.
        Some(wait.clamp(CPU_READ_EVERY, QUOTA_PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_stale_time_does_not_accrue_tokens_twice() {
        let quota = CpuQuota::new(Some(0.5));
        let at = |ms: u32| Time::default() + ms * MS;
        assert_eq!(quota.pause(at(0), || Duration::ZERO), None);
        for ten in 1..=10 {
            // The process uses all that accrues, and slightly more from the start.
            let used = ten * 5 * MS + MS;
            assert!(quota.pause(at(ten * 10), || used).is_some(), "after {ten}0 ms");
            // A thread that was preempted after reading the clock.
            assert!(quota.pause(at(ten * 10 - 9), || used).is_some(), "after {ten}0 ms");
        }
    }

    /// Simulates a process that uses all it may for a second; returns its CPU time and its longest pause.
    fn run(cores: f64, turn: Duration) -> (Duration, Duration) {
        let quota = CpuQuota::new(Some(cores));
        let (mut now, mut used, mut longest) = (Time::ZERO, Duration::ZERO, Duration::ZERO);
        while now < Time::ZERO + MS * 1000 {
            match quota.pause(now, || used) {
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
    fn a_busy_process_gets_its_quota_in_short_pauses() {
        for cores in [0.1, 0.3, 0.9] {
            let (used, longest) = run(cores, MS / 10);
            let got = used.as_secs_f64();
            assert!((got - cores).abs() < 0.02, "{cores} cores gave {got}");
            assert!(longest <= QUOTA_PAUSE_MAX, "{longest:?}");
        }
    }

    #[test]
    fn long_turns_are_paid_back() {
        let (used, longest) = run(0.3, MS * 40);
        assert!((used.as_secs_f64() - 0.3).abs() < 0.05, "{used:?}");
        assert!(longest <= QUOTA_PAUSE_MAX);
    }

    #[test]
    fn without_a_quota_the_cpu_clock_is_never_read() {
        let quota = CpuQuota::new(None);
        assert_eq!(quota.pause(Time(1), || panic!("the clock was read")), None);
    }
}
