//! The process's clocks.

use std::time::Duration;

use elastin_types::Time;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock that all times of a runtime are on.
///
/// Read as the nanoseconds that the system gives, because an [`Instant`](std::time::Instant) takes longer to take apart than
/// to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: monotonic() }
    }

    pub(crate) fn now(&self) -> Time {
        Time(monotonic() - self.origin)
    }
}

/// The system's monotonic clock, in nanoseconds.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // It starts at zero and lasts for five centuries, so neither part is negative and nothing overflows.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
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
