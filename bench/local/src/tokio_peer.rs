//! Shared code of the contenders that run on tokio.

use std::collections::HashMap;
use std::time::Duration;

use crate::workload::{Counter, Kind, MANY, Row, run};

/// A library with actors on tokio.
pub trait Library {
    type Counter: Counter;

    /// The environment of its actors.
    type System: Send + Sync;

    fn system() -> Self::System;

    fn start(system: &Self::System, key: u64) -> impl Future<Output = Self::Counter> + Send;
}

/// A tokio runtime with this many threads.
pub fn tokio(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("tokio starts")
}

pub fn measure<L: Library>(row: Row, operations: u64) -> Duration {
    let work = async move {
        let system = L::system();
        let mut counters = Vec::new();
        for key in 0..MANY {
            counters.push(L::start(&system, key).await);
        }
        run(row, &counters, operations).await
    };
    let tokio = tokio(row.workers());
    tokio.block_on(async { tokio::spawn(work).await.expect("the workload does not panic") })
}

/// Keeps idle actors.
pub fn hold<L: Library>(actors: u64, inspect: &mut dyn FnMut()) {
    tokio(1).block_on(async {
        let system = L::system();
        let mut registry = HashMap::new();
        for key in 0..actors {
            let counter = L::start(&system, key).await;
            counter.call(Kind::Now).await;
            registry.insert(key, counter);
        }
        inspect();
    });
}
