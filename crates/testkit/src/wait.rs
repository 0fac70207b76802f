//! Waiting for something that will be.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails: far longer than it takes on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How long to wait between two looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Waits until something is so, with a limit.
///
/// # Panics
/// If it is not so in time.
pub async fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    wait_for_some(what, async || there().then_some(()).ok_or("")).await;
}

/// Asks for something until it is there, with a limit.
///
/// # Panics
/// If it is not there in time, with what is there instead.
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
