//! CPU time spent on busy-polling does not count as used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use elastin_actor::ReplySender;
use elastin_runtime::{Grant, Interest, Remote, Runtime, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, Outcome};
use rustix::time::{ClockId, clock_gettime};

/// A `Remote` without peers that reports its busy-poll time.
#[derive(Default)]
struct BusyPoller {
    nanos: AtomicU64,
}

impl BusyPoller {
    /// Busy-polls for this much CPU time.
    fn busy_poll(&self, time: Duration) {
        let cpu = || clock_gettime(ClockId::ThreadCPUTime);
        let nanos = |at: rustix::time::Timespec| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64;
        let (began, limit) = (nanos(cpu()), Instant::now() + Duration::from_secs(20));
        while nanos(cpu()) - began < time.as_nanos() as u64 {
            assert!(Instant::now() < limit, "this thread gets no CPU time");
        }
        self.nanos.fetch_add(nanos(cpu()) - began, Ordering::Relaxed);
    }
}

impl Remote for BusyPoller {
    fn may_activate_here(&self, _actor: &ActorId) -> Option<Grant> {
        None
    }

    fn send(&self, _message: Arc<Message>, _reply: Option<ReplySender>) {}

    fn reply(&self, _call: CallId, _outcome: Outcome) {}

    fn save(&self, _actor: &ActorId, _epoch: ActivationEpoch, _state: Bytes, done: SaveDone) {
        done(Ok(()));
    }

    fn busy_poll_time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

#[tokio::test]
async fn busy_poll_time_does_not_count_as_used_cpu() {
    let poller = Arc::new(BusyPoller::default());
    // Busy-polling before the first snapshot must not be subtracted from later use.
    poller.busy_poll(Duration::from_millis(50));
    let builder = Runtime::builder().remote(poller.clone());
    let runtime = builder.workers(1).build().unwrap();
    let used = || {
        let snapshot = runtime.snapshot(&Interest::All);
        snapshot.server.usage.cpu.used / 1000.0 * snapshot.period.as_secs_f64()
    };
    used();
    poller.busy_poll(Duration::from_millis(200));
    let polling = used();
    assert!(polling < 0.05, "{polling} s were counted as used");
    BusyPoller::default().busy_poll(Duration::from_millis(200));
    let working = used();
    assert!(working > 0.15, "only {working} s were counted as used");
}
