//! CPU time of the current thread.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Measures how long a closure takes.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let start = processor_time();
    std::hint::black_box(run());
    processor_time().saturating_sub(start)
}

/// The CPU time of this thread, which excludes other programs; wall-clock time where it is unavailable.
fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
