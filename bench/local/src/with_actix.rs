//! actix. Its actors live on the thread they were started on; callers are on the same one, which is its fastest way.

use std::time::Duration;

use actix::prelude::*;

use crate::workload::{MAILBOX, MANY, Row, timed};

struct Counter {
    count: u64,
}

impl Actor for Counter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        context.set_mailbox_capacity(MAILBOX);
    }
}

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Message)]
#[rtype(result = "u64")]
struct AddLater(u64);

impl Handler<Add> for Counter {
    type Result = u64;

    fn handle(&mut self, message: Add, _context: &mut Context<Self>) -> u64 {
        self.count += message.0;
        self.count
    }
}

impl Handler<AddLater> for Counter {
    type Result = AtomicResponse<Self, u64>;

    fn handle(&mut self, message: AddLater, _context: &mut Context<Self>) -> Self::Result {
        let later = tokio::task::yield_now().into_actor(self).map(move |(), counter, _| {
            counter.count += message.0;
            counter.count
        });
        AtomicResponse::new(Box::pin(later))
    }
}

async fn one_after_another(counter: Addr<Counter>, calls: u64, later: bool) {
    for _ in 0..calls {
        if later {
            counter.send(AddLater(1)).await.expect("the actor replies");
        } else {
            counter.send(Add(1)).await.expect("the actor replies");
        }
    }
}

async fn everybody(operations: u64, of: impl Fn(u64) -> Addr<Counter>, later: bool) {
    let tasks: Vec<_> = (0..MANY)
        .map(|index| tokio::task::spawn_local(one_after_another(of(index), operations / MANY, later)))
        .collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
}

pub fn measure(row: Row, _workers: usize) -> Duration {
    let operations = row.operations();
    System::new().block_on(async move {
        let counters: Vec<_> = (0..MANY).map(|_| Counter { count: 0 }.start()).collect();
        let first = counters[0].clone();
        let of = |index: u64| counters[index as usize].clone();
        match row {
            Row::CallIdle => timed(one_after_another(first, operations, false)).await,
            Row::CallAwaits => timed(one_after_another(first, operations, true)).await,
            Row::Tell => {
                timed(async {
                    for told in 0..operations {
                        first.do_send(Add(1));
                        // Without this the actor, on the same thread, would never run and its mailbox never end.
                        if told % MAILBOX as u64 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    one_after_another(first.clone(), 1, false).await;
                })
                .await
            }
            Row::Many | Row::ManyAwait => timed(everybody(operations, of, row == Row::ManyAwait)).await,
            Row::Hot => timed(everybody(operations, |_| first.clone(), false)).await,
        }
    })
}

/// Keeps idle actors.
pub fn hold(actors: u64, look: &mut dyn FnMut()) {
    System::new().block_on(async {
        let mut registry = std::collections::HashMap::new();
        for key in 0..actors {
            let counter = Counter { count: 0 }.start();
            one_after_another(counter.clone(), 1, false).await;
            registry.insert(key, counter);
        }
        look();
    });
}
