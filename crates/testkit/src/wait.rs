//! Waiting for a condition, with a limit.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The limit: far longer than a test waits on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold in time.
pub async fn wait_for(label: &str, mut holds: impl FnMut() -> bool) {
    wait_for_some(label, async || holds().then_some(()).ok_or("")).await;
}

/// Retries until an attempt returns a value.
///
/// # Panics
/// If it is not there in time, with the last result.
pub async fn wait_for_some<T, E: Display>(label: &str, mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(last) => assert!(began.elapsed() < LIMIT, "timed out waiting for {label}\n{last}"),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
