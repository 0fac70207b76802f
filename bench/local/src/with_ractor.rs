//! ractor.

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, call};

use crate::workload::{MANY, Row, clients, timed};

struct Counter;

enum Message {
    Add(u64, bool, RpcReplyPort<u64>),
    Tell(u64),
}

impl Actor for Counter {
    type Msg = Message;
    type State = u64;
    type Arguments = ();

    async fn pre_start(&self, _me: ActorRef<Message>, (): ()) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _me: ActorRef<Message>,
        message: Message,
        count: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Add(n, later, reply) => {
                if later {
                    tokio::task::yield_now().await;
                }
                *count += n;
                let _ = reply.send(*count);
            }
            Message::Tell(n) => *count += n,
        }
        Ok(())
    }
}

async fn one_after_another(counter: ActorRef<Message>, calls: u64, later: bool) {
    for _ in 0..calls {
        call!(counter, |reply| Message::Add(1, later, reply)).expect("the actor replies");
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
        let mut counters = Vec::new();
        for _ in 0..MANY {
            let (counter, _) = Actor::spawn(None, Counter, ()).await.expect("the actor starts");
            counters.push(counter);
        }
        let first = counters[0].clone();
        match row {
            Row::CallIdle => timed(one_after_another(first, operations, false)).await,
            Row::CallAwaits => timed(one_after_another(first, operations, true)).await,
            Row::Tell => {
                timed(async {
                    for _ in 0..operations {
                        first.cast(Message::Tell(1)).expect("the actor is there");
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
            let (counter, _) = Actor::spawn(None, Counter, ()).await.expect("the actor starts");
            one_after_another(counter.clone(), 1, false).await;
            registry.insert(key, counter);
        }
        look();
    });
}
