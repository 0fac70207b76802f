//! The CPU time of the process: its quota, and busy-polling, which does not count as used.
//!
//! These tests have a binary of their own and run one at a time, because they measure the whole process.

extern crate elastin_actor as elastin;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use elastin::{Actor, Ref, handlers};
use elastin_actor::ReplySender;
use elastin_runtime::{Grant, Interest, Remote, Runtime, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallId, Message, Outcome};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());

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
    let _alone = ALONE.lock().await;
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

#[derive(Actor, Serialize, Deserialize, Default)]
struct Burner {}

#[handlers]
impl Burner {
    fn burn(&mut self, for_us: u64) {
        let end = Instant::now() + Duration::from_micros(for_us);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

#[tokio::test]
async fn a_process_stays_within_its_cpu_quota() {
    const QUOTA: f64 = 0.3;
    let _alone = ALONE.lock().await;
    let runtime = Runtime::builder()
        .register::<Burner>()
        .workers(2)
        .cpu_share(Some(QUOTA))
        .build()
        .unwrap();
    let mut callers = Vec::new();
    for key in 0..4_u64 {
        let burner: Ref<Burner> = runtime.client().actor(key);
        callers.push(tokio::spawn(async move {
            loop {
                burner.burn(200).await.unwrap();
            }
        }));
    }
    runtime.snapshot(&Interest::All);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let snapshot = runtime.snapshot(&Interest::All);
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let cores = snapshot.server.usage.cpu.used / 1000.0;
    // The upper bound is the quota; the lower one allows for a busy machine.
    assert!(cores > QUOTA * 0.2 && cores < QUOTA * 1.15, "{cores} cores used");
    assert_eq!(snapshot.server.usage.cpu.capacity, Some(QUOTA * 1000.0));
    assert!(runtime.stats().throttled > 0);
}
