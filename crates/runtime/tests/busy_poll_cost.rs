//! The time that a process has spent on looking for mail is nobody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use elastin_actor::ReplySender;
use elastin_runtime::{Grant, Interest, Remote, Runtime, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, Outcome};
use rustix::time::{ClockId, clock_gettime};

/// Nobody is out there; it says for how long it has looked.
#[derive(Default)]
struct Looker {
    nanos: AtomicU64,
}

impl Looker {
    /// Looks for this much of the processor's time.
    fn look(&self, time: Duration) {
        let cpu = || clock_gettime(ClockId::ThreadCPUTime);
        let nanos = |at: rustix::time::Timespec| at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64;
        let (began, limit) = (nanos(cpu()), Instant::now() + Duration::from_secs(20));
        while nanos(cpu()) - began < time.as_nanos() as u64 {
            assert!(Instant::now() < limit, "this thread gets no time");
        }
        self.nanos.fetch_add(nanos(cpu()) - began, Ordering::Relaxed);
    }
}

impl Remote for Looker {
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
async fn looking_is_no_use_of_the_server() {
    let looker = Arc::new(Looker::default());
    // What was looked before it began is not taken off what it uses.
    looker.look(Duration::from_millis(50));
    let builder = Runtime::builder().outside(looker.clone());
    let runtime = builder.workers(1).build().unwrap();
    let used = || {
        let snapshot = runtime.snapshot(&Interest::All);
        snapshot.server.usage.cpu.used / 1000.0 * snapshot.period.as_secs_f64()
    };
    used();
    looker.look(Duration::from_millis(200));
    let looking = used();
    assert!(looking < 0.05, "{looking} s were used");
    Looker::default().look(Duration::from_millis(200));
    let working = used();
    assert!(working > 0.15, "{working} s were used");
}
