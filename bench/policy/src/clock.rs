//! Time that this thread has run.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long something takes.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> Duration {
    let start = processor_time();
    std::hint::black_box(run());
    processor_time().saturating_sub(start)
}

/// The time that this thread has run, so that other programs do not count; the time of day where that is not known.
fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
