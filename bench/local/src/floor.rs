//! The floor: a tokio task with a bounded channel per actor, written by hand.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::workload::{MAILBOX, MANY, Row, clients, timed};

enum Message {
    Add(u64, oneshot::Sender<u64>),
    AddLater(u64, oneshot::Sender<u64>),
    Tell(u64),
}

type Counter = mpsc::Sender<Message>;

fn spawn() -> Counter {
    let (sender, mut receiver) = mpsc::channel(MAILBOX);
    tokio::spawn(async move {
        let mut count = 0;
        while let Some(message) = receiver.recv().await {
            match message {
                Message::Add(n, reply) => {
                    count += n;
                    let _ = reply.send(count);
                }
                Message::AddLater(n, reply) => {
                    tokio::task::yield_now().await;
                    count += n;
                    let _ = reply.send(count);
                }
                Message::Tell(n) => count += n,
            }
        }
    });
    sender
}

async fn add(counter: &Counter, later: bool) -> u64 {
    let (reply, receiver) = oneshot::channel();
    let message = if later {
        Message::AddLater(1, reply)
    } else {
        Message::Add(1, reply)
    };
    counter.send(message).await.ok().expect("the actor is there");
    receiver.await.expect("the actor replies")
}

async fn one_after_another(counter: Counter, calls: u64, later: bool) {
    for _ in 0..calls {
        add(&counter, later).await;
    }
}

pub fn measure(row: Row, workers: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .build()
        .expect("tokio starts");
    let operations = row.operations();
    let work = async move {
        let counters: Vec<_> = (0..MANY).map(|_| spawn()).collect();
        let first = counters[0].clone();
        match row {
            Row::CallIdle => timed(one_after_another(first, operations, false)).await,
            Row::CallAwaits => timed(one_after_another(first, operations, true)).await,
            Row::Tell => {
                timed(async {
                    for _ in 0..operations {
                        first.send(Message::Tell(1)).await.ok().expect("the actor is there");
                    }
                    add(&first, false).await;
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
        .build()
        .expect("tokio starts");
    runtime.block_on(async {
        let mut registry = std::collections::HashMap::new();
        for key in 0..actors {
            add(registry.entry(key).or_insert_with(spawn), false).await;
        }
        look();
    });
}
