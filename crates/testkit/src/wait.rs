//! Waiting for a condition, with a limit.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails: far longer than it takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Polling interval.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold in time.
pub async fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    wait_for_some(what, async || there().then_some(()).ok_or("")).await;
}

/// Retries until a value is there.
///
/// # Panics
/// If it is not there in time, with the last result.
pub async fn wait_for_some<T, E: Display>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(there) => return there,
            Err(instead) => assert!(began.elapsed() < LIMIT, "waited in vain for {what}\n{instead}"),
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}
