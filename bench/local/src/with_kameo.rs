//! kameo, with its bounded mailbox.

use std::time::Duration;

use kameo::prelude::*;

use crate::workload::{MAILBOX, MANY, Row, clients, timed};

#[derive(Actor)]
struct Counter {
    count: u64,
}

struct Add(u64, bool);

impl Message<Add> for Counter {
    type Reply = u64;

    async fn handle(&mut self, message: Add, _context: &mut Context<Self, u64>) -> u64 {
        if message.1 {
            tokio::task::yield_now().await;
        }
        self.count += message.0;
        self.count
    }
}

async fn one_after_another(counter: ActorRef<Counter>, calls: u64, later: bool) {
    for _ in 0..calls {
        counter.ask(Add(1, later)).await.expect("the actor replies");
    }
}

pub fn measure(row: Row, workers: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("tokio starts");
    let operations = row.operations();
    let work = async move {
        let counters: Vec<_> = (0..MANY)
            .map(|_| Counter::spawn_with_mailbox(Counter { count: 0 }, kameo::mailbox::bounded(MAILBOX)))
            .collect();
        let first = counters[0].clone();
        match row {
            Row::CallIdle => timed(one_after_another(first, operations, false)).await,
            Row::CallAwaits => timed(one_after_another(first, operations, true)).await,
            Row::Tell => {
                timed(async {
                    for _ in 0..operations {
                        first.tell(Add(1, false)).await.expect("the actor is there");
                    }
                    one_after_another(first, 1, false).await;
                })
                .await
            }
            Row::Many | Row::ManyAwait => {
                let later = row == Row::ManyAwait;
                timed(clients(operations, |index, each| {
                    one_after_another(counters[index as usize].clone(), each, later)
                }))
                .await
            }
            Row::Hot => {
                timed(clients(operations, |_, each| {
                    one_after_another(first.clone(), each, false)
                }))
                .await
            }
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.expect("the workload does not panic") })
}

/// Keeps idle actors.
pub fn hold(actors: u64, look: &mut dyn FnMut()) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("tokio starts").block_on(async {
        let mut registry = std::collections::HashMap::new();
        for key in 0..actors {
            let counter = Counter::spawn_with_mailbox(Counter { count: 0 }, kameo::mailbox::bounded(MAILBOX));
            one_after_another(counter.clone(), 1, false).await;
            registry.insert(key, counter);
        }
        look();
    });
}
