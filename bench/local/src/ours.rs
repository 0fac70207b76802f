//! Elastin, with accounting on, as users run it. Callers are actors.

use std::time::Duration;

use elastin::{Actor, Ref, handlers};
use elastin_runtime::Runtime;
use serde::{Deserialize, Serialize};

use crate::workload::{MAILBOX, MANY, Row, timed};

#[derive(Actor, Serialize, Deserialize, Default)]
struct Counter {
    count: u64,
}

#[handlers]
impl Counter {
    fn add(&mut self, n: u64) -> u64 {
        self.count += n;
        self.count
    }

    async fn add_later(&mut self, n: u64) -> u64 {
        tokio::task::yield_now().await;
        self.count += n;
        self.count
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Caller {}

#[handlers]
impl Caller {
    async fn call(&mut self, counter: Ref<Counter>, calls: u64) {
        for _ in 0..calls {
            counter.add(1).await.expect("the actor is there");
        }
    }

    async fn call_later(&mut self, counter: Ref<Counter>, calls: u64) {
        for _ in 0..calls {
            counter.add_later(1).await.expect("the actor is there");
        }
    }

    async fn tell(&mut self, counter: Ref<Counter>, tells: u64) {
        for _ in 0..tells {
            counter.add(1).tell().await.expect("the actor is there");
        }
        counter.add(0).await.expect("the actor is there");
    }
}

pub fn measure(row: Row, workers: usize) -> Duration {
    let outer = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio starts");
    outer.block_on(async {
        let settings = elastin_runtime::Settings {
            workers,
            mailbox_max: MAILBOX,
            ..Default::default()
        };
        let runtime = Runtime::builder()
            .register::<Counter>()
            .register::<Caller>()
            .settings(settings)
            .build()
            .expect("the runtime starts");
        let client = runtime.client();
        for key in 0..MANY {
            client.actor::<Counter>(key).add(0).await.expect("the actor is there");
            client
                .actor::<Caller>(key)
                .call(client.actor(key), 0)
                .await
                .expect("the actor is there");
        }
        let caller: Ref<Caller> = client.actor(0);
        let counter: Ref<Counter> = client.actor(0);
        let operations = row.operations();
        let each = operations / MANY;
        let everybody = async |one: bool, later: bool| {
            let tasks: Vec<_> = (0..MANY)
                .map(|key| {
                    let caller: Ref<Caller> = client.actor(key);
                    let counter: Ref<Counter> = client.actor(if one { 0 } else { key });
                    tokio::spawn(async move {
                        match later {
                            true => caller.call_later(counter, each).await,
                            false => caller.call(counter, each).await,
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await
                    .expect("a client does not panic")
                    .expect("the actor is there");
            }
        };
        let taken = match row {
            Row::CallIdle => timed(caller.call(counter, operations).into_future()).await,
            Row::CallAwaits => timed(caller.call_later(counter, operations).into_future()).await,
            Row::Tell => timed(caller.tell(counter, operations).into_future()).await,
            Row::Many => timed(everybody(false, false)).await,
            Row::ManyAwait => timed(everybody(false, true)).await,
            Row::Hot => timed(everybody(true, false)).await,
        };
        runtime.shutdown(Duration::from_secs(5)).await;
        taken
    })
}

/// Keeps idle actors with number keys.
pub fn hold(actors: u64, look: &mut dyn FnMut()) {
    hold_with(actors, look, |client, key| client.actor(key));
}

/// Keeps idle actors with string keys.
pub fn hold_named(actors: u64, look: &mut dyn FnMut()) {
    hold_with(actors, look, |client, key| client.actor(format!("{key:016}")));
}

fn hold_with(actors: u64, look: &mut dyn FnMut(), make: impl Fn(&elastin::Client, u64) -> Ref<Counter>) {
    let outer = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio starts");
    outer.block_on(async {
        let runtime = Runtime::builder()
            .register::<Counter>()
            .workers(1)
            .build()
            .expect("the runtime starts");
        let client = runtime.client();
        for key in 0..actors {
            make(&client, key).add(1).await.expect("the actor is there");
        }
        // Two periods later, as on any node, what was measured of idle actors is gone.
        for _ in 0..2 {
            runtime.snapshot(&elastin_runtime::Interest::Types(Default::default()));
        }
        look();
    });
}
