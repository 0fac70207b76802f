//! The CPU quota of a process. Alone in its file, so that the process does nothing else.

extern crate elastin_actor as elastin;

mod common;

use std::time::{Duration, Instant};

use common::within;
use elastin::{Actor, Ref, handlers};
use elastin_runtime::{Interest, Runtime};
use serde::{Deserialize, Serialize};

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
    let begun = Instant::now();
    within("a second", async {
        while begun.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let snapshot = runtime.snapshot(&Interest::All);
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let cores = snapshot.server.usage.cpu.used / 1000.0;
    // The upper bound is the quota; the lower one allows for a busy machine.
    assert!(cores > QUOTA * 0.2 && cores < QUOTA * 1.15, "{cores} cores used");
    assert_eq!(snapshot.server.usage.cpu.capacity, Some(QUOTA * 1000.0));
    assert!(runtime.stats().throttled > 0);
}
