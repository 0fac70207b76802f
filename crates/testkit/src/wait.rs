//! Waiting for something that will be.

use std::time::{Duration, Instant};

/// How long anything may take before a test fails: far longer than it takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(60);
/// How long to wait between two looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Waits until something is so, with a limit.
///
/// # Panics
/// If it is not so in time.
pub async fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}
