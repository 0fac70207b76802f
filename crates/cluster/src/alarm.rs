//! An alarm clock that is set far more often than it rings: setting it later costs two atomic operations and wakes nobody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastin_types::Time;
use tokio::sync::Notify;

/// No time at all.
const NEVER: u64 = u64::MAX;

/// The shortest sleep, so that an alarm in the past does not keep a core busy.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// The alarm clock of one machine.
pub(crate) struct Alarm {
    /// When it shall ring.
    wanted: AtomicU64,
    /// Until when the task that waits sleeps.
    asleep_until: AtomicU64,
    earlier: Notify,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicU64::new(NEVER),
            asleep_until: AtomicU64::new(NEVER),
            earlier: Notify::new(),
        }
    }

    /// Sets the alarm, instead of any earlier setting.
    pub(crate) fn set(&self, at: Option<Time>) {
        let at = at.map_or(NEVER, |at| at.0);
        self.wanted.store(at, Ordering::SeqCst);
        if at < self.asleep_until.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Waits until the alarm may ring: it may be early, never late for long.
    pub(crate) async fn wait(&self, now: Time) {
        let wanted = self.wanted.load(Ordering::SeqCst);
        self.asleep_until.store(wanted, Ordering::SeqCst);
        // Set earlier between the two lines above: then nobody was asleep to be told.
        if self.wanted.load(Ordering::SeqCst) < wanted {
            return;
        }
        if wanted == NEVER {
            return self.earlier.notified().await;
        }
        let left = Time(wanted).since(now).max(SLEEP_MIN);
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            () = self.earlier.notified() => {}
        }
    }

    /// Whether it is time.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.wanted.load(Ordering::SeqCst) <= now.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    async fn rings_after(alarm: &Alarm, started: Instant) -> Duration {
        let now = || Time(started.elapsed().as_nanos() as u64);
        while !alarm.is_due(now()) {
            alarm.wait(now()).await;
        }
        started.elapsed()
    }

    #[tokio::test]
    async fn it_rings_when_it_is_set_earlier_while_somebody_waits() {
        let alarm = Arc::new(Alarm::new());
        let started = Instant::now();
        alarm.set(Some(Time(Duration::from_secs(3600).as_nanos() as u64)));
        let waiting = tokio::spawn({
            let alarm = Arc::clone(&alarm);
            async move { rings_after(&alarm, started).await }
        });
        tokio::task::yield_now().await;
        alarm.set(Some(Time(Duration::from_millis(20).as_nanos() as u64)));
        let rang = tokio::time::timeout(Duration::from_secs(10), waiting)
            .await
            .expect("it rings")
            .unwrap();
        assert!(rang >= Duration::from_millis(20));
    }
}
