//! The cost of a snapshot with few and with very many idle actors beside the busy ones.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench_table::Samples;
use elastin::{Actor, Ref, handlers};
use elastin_runtime::{Interest, Runtime};
use elastin_types::ActorType;
use serde::{Deserialize, Serialize};

const BUSY: u64 = 10_000;
const IDLE: [u64; 2] = [1_000_000, 10_000];

#[derive(Actor, Serialize, Deserialize, Default)]
struct Worker {
    done: u64,
}

#[handlers]
impl Worker {
    fn work(&mut self) -> u64 {
        self.done += 1;
        self.done
    }
}

/// Milliseconds per snapshot, with very many idle actors and with few.
pub(crate) fn measure(rounds: usize) -> Result<(Samples, Samples)> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    tokio.block_on(async {
        let mut samples = [Samples::default(), Samples::default()];
        let mut runtimes = Vec::new();
        for idle in IDLE {
            let runtime = crate::builder(1, true).register::<Worker>().build()?;
            for key in 0..BUSY + idle {
                let worker: Ref<Worker> = runtime.client().actor(key);
                worker.work().await?;
            }
            // All were called: from here on only some are busy.
            snapshot(&runtime);
            snapshot(&runtime);
            runtimes.push(runtime);
        }
        for _ in 0..rounds {
            for (runtime, samples) in runtimes.iter().zip(&mut samples) {
                for key in 0..BUSY {
                    let worker: Ref<Worker> = runtime.client().actor(key);
                    worker.work().await?;
                }
                let (time, listed) = snapshot(runtime);
                ensure!(listed as u64 == BUSY, "{listed} actors are listed, not {BUSY}");
                samples.add(time.as_secs_f64() * 1000.0);
            }
        }
        let [many, few] = samples;
        anyhow::Ok((many, few))
    })
}

fn snapshot(runtime: &Runtime) -> (Duration, usize) {
    let interest = Interest::Types {
        busy: [ActorType::of("Worker")].into(),
        always: [].into(),
    };
    let began = Instant::now();
    let snapshot = runtime.snapshot(&interest);
    (began.elapsed(), snapshot.actors.len())
}
