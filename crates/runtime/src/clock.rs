//! The process's clocks.

use std::time::{Duration, Instant};

use elastin_types::Time;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock that all times of a runtime are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }
}

/// The CPU time that the whole process has used. A system call: not for every turn.
pub(crate) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // CPU clocks start at zero and never go back, so neither part is negative.
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
