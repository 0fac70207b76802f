//! The cost of profiling for a message with an empty handler, edges on.

use std::time::Instant;

use anyhow::Result;
use bench_table::Samples;
use elastin::{Actor, Ref, handlers};
use serde::{Deserialize, Serialize};

/// The most that profiling may add to a message.
pub(crate) const ADDED_NS_MAX: f64 = 15.0;

/// The number of calls of one measurement.
const CALLS: u64 = 2_000_000;

/// The number of actors called in turn, so that there are edges.
const CALLEES: u64 = 16;

#[derive(Actor, Serialize, Deserialize, Default)]
struct Callee {}

#[handlers]
impl Callee {
    fn nothing(&mut self) {}
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Caller {
    callees: Vec<Ref<Callee>>,
}

#[handlers]
impl Caller {
    async fn call(&mut self, ctx: &elastin::Ctx, calls: u64) {
        if self.callees.is_empty() {
            self.callees = (0..CALLEES).map(|key| ctx.actor(key)).collect();
        }
        for call in 0..calls {
            let callee = &self.callees[(call % CALLEES) as usize];
            callee.nothing().await.expect("a call within a node");
        }
    }
}

/// Nanoseconds per message with profiling on and off, alternating.
pub(crate) fn measure(rounds: usize) -> Result<(Samples, Samples)> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    tokio.block_on(async {
        let start = |profiling| {
            crate::builder(1, profiling)
                .register::<Callee>()
                .register::<Caller>()
                .build()
        };
        let runtimes = [start(true)?, start(false)?];
        let mut samples = [Samples::default(), Samples::default()];
        for _ in 0..rounds {
            for (runtime, samples) in runtimes.iter().zip(&mut samples) {
                let caller: Ref<Caller> = runtime.client().actor(1);
                // Several turns, so that callers are sampled in some and not in others, as in real use.
                let began = Instant::now();
                for _ in 0..1000 {
                    caller.call(CALLS / 1000).await?;
                }
                samples.add(began.elapsed().as_nanos() as f64 / CALLS as f64);
            }
        }
        let [on, off] = samples;
        anyhow::Ok((on, off))
    })
}
