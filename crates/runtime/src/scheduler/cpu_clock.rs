//! CPU time used by the process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time used by the whole process. This is a system call, too slow to do per turn.
pub(crate) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // CPU clocks start at zero and never go back, so neither part is negative.
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
