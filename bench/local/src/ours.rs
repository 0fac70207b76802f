//! Elastin, with accounting on, as users run it. Callers are actors, or tasks outside where a row is named so.

use std::time::Duration;

use elastin::{Actor, Client, Ref, handlers};
use elastin_runtime::{Interest, Runtime, Settings};
use elastin_types::CallError;
use serde::{Deserialize, Serialize};

use crate::node::Lone;
use crate::tokio_peer::tokio;
use crate::workload::{Counter, Kind, MAILBOX, MANY, Row, run, timed, work};

#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Count {
    count: u64,
}

#[handlers]
impl Count {
    fn add(&mut self, n: u64) -> u64 {
        self.count += n;
        self.count
    }

    async fn add_async(&mut self, n: u64) -> u64 {
        self.count += n;
        self.count
    }

    async fn add_later(&mut self, n: u64) -> u64 {
        tokio::task::yield_now().await;
        self.count += n;
        self.count
    }

    fn add_working(&mut self, n: u64) -> u64 {
        work();
        self.count += n;
        self.count
    }
}

impl Counter for Ref<Count> {
    async fn call(&self, kind: Kind) -> u64 {
        loop {
            let called = match kind {
                Kind::Now => self.add(1).await,
                Kind::Later => self.add_later(1).await,
                Kind::Work => self.add_working(1).await,
            };
            match called {
                Ok(count) => return count,
                // A call does not wait for space in a mailbox that tells have filled.
                Err(CallError::Overloaded(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("the actor is running: {error}"),
            }
        }
    }

    async fn tell(&self, kind: Kind) {
        match kind {
            Kind::Now => self.add(1).tell().await,
            Kind::Later => self.add_later(1).tell().await,
            Kind::Work => self.add_working(1).tell().await,
        }
        .expect("the actor is running");
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Caller {}

#[handlers]
impl Caller {
    async fn call(&mut self, counter: Ref<Count>, calls: u64) {
        for _ in 0..calls {
            counter.add(1).await.expect("the actor is running");
        }
    }

    async fn call_async(&mut self, counter: Ref<Count>, calls: u64) {
        for _ in 0..calls {
            counter.add_async(1).await.expect("the actor is running");
        }
    }

    async fn call_later(&mut self, counter: Ref<Count>, calls: u64) {
        for _ in 0..calls {
            counter.add_later(1).await.expect("the actor is running");
        }
    }

    async fn tell(&mut self, counter: Ref<Count>, tells: u64) {
        for _ in 0..tells {
            counter.add(1).tell().await.expect("the actor is running");
        }
        counter.call(Kind::Now).await;
    }

    async fn tell_working(&mut self, counter: Ref<Count>, tells: u64) {
        for _ in 0..tells {
            work();
            counter.add_working(1).tell().await.expect("the actor is running");
        }
        counter.call(Kind::Now).await;
    }
}

pub fn measure(row: Row, operations: u64) -> Duration {
    measure_with(row, operations, Settings::default())
}

/// Like [`measure`], without accounting.
pub fn measure_unaccounted(row: Row, operations: u64) -> Duration {
    let profiling = false;
    measure_with(
        row,
        operations,
        Settings {
            profiling,
            ..Settings::default()
        },
    )
}

/// Like [`measure`], in a process slowed down by callgrind: the limits of inline turns are scaled accordingly.
pub fn measure_slowed(row: Row, operations: u64) -> Duration {
    const SLOWDOWN: u32 = 100;
    let usual = Settings::default();
    let slowed = Settings {
        inline_turn_max: usual.inline_turn_max * SLOWDOWN,
        resume_turn_max: usual.resume_turn_max * SLOWDOWN,
        ..usual
    };
    measure_with(row, operations, slowed)
}

fn measure_with(row: Row, operations: u64, settings: Settings) -> Duration {
    let settings = Settings {
        workers: row.workers(),
        mailbox_max: MAILBOX,
        ..settings
    };
    within(settings, async |runtime| {
        let client = runtime.client();
        let counters: Vec<Ref<Count>> = (0..MANY).map(|key| client.actor(key)).collect();
        let callers: Vec<Ref<Caller>> = (0..MANY).map(|key| client.actor(key)).collect();
        for (caller, counter) in callers.iter().zip(&counters) {
            caller.call(counter.clone(), 1).await.expect("the actor is running");
        }
        let (caller, counter) = (&callers[0], counters[0].clone());
        match row {
            Row::CallIdle => timed(caller.call(counter, operations).into_future()).await,
            Row::CallIdleAsync => timed(caller.call_async(counter, operations).into_future()).await,
            Row::CallAwaits => timed(caller.call_later(counter, operations).into_future()).await,
            Row::Tell => timed(caller.tell(counter, operations).into_future()).await,
            Row::Pipeline => timed(caller.tell_working(counter, operations).into_future()).await,
            Row::Many | Row::ManyAwait | Row::Hot => timed(run_callers(row, &callers, &counters, operations)).await,
            // A task, as with the other contenders.
            _ => tokio::spawn(async move { run(row, &counters, operations).await })
                .await
                .expect("the workload does not panic"),
        }
    })
}

/// Each caller calls its own counter, or all call the same one.
async fn run_callers(row: Row, callers: &[Ref<Caller>], counters: &[Ref<Count>], operations: u64) {
    let start = |(index, caller): (usize, &Ref<Caller>)| {
        let counter = counters[if row == Row::Hot { 0 } else { index }].clone();
        let caller = caller.clone();
        tokio::spawn(async move {
            match row {
                Row::ManyAwait => caller.call_later(counter, operations / MANY).await,
                _ => caller.call(counter, operations / MANY).await,
            }
        })
    };
    let tasks: Vec<_> = callers.iter().enumerate().map(start).collect();
    for task in tasks {
        let done = task.await.expect("a client does not panic");
        done.expect("the actor is running");
    }
}

/// Runs a closure in a runtime.
fn within<T>(settings: Settings, work: impl AsyncFnOnce(&Runtime) -> T) -> T {
    // Clients outside run on as many threads as those of the other contenders.
    tokio(settings.workers).block_on(async {
        let builder = Runtime::builder().register::<Count>().register::<Caller>();
        let runtime = builder.settings(settings).build().expect("the runtime starts");
        let result = work(&runtime).await;
        runtime.shutdown(Duration::from_secs(5)).await;
        result
    })
}

/// Keeps idle actors with number keys, in a runtime and in the node around it.
pub fn hold(actors: u64, inspect: &mut dyn FnMut()) {
    hold_with(actors, inspect, |client, key| client.actor(key));
}

/// Keeps idle actors with string keys.
pub fn hold_named(actors: u64, inspect: &mut dyn FnMut()) {
    hold_with(actors, inspect, |client, key| client.actor(format!("{key:016}")));
}

fn hold_with(actors: u64, inspect: &mut dyn FnMut(), make: impl Fn(&Client, u64) -> Ref<Count>) {
    let settings = Settings {
        workers: 1,
        ..Default::default()
    };
    within(settings, async |runtime| {
        let client = runtime.client();
        let mut node = Lone::new();
        for key in 0..actors {
            let counter = make(&client, key);
            node.first_call(counter.id().clone());
            counter.add(1).await.expect("the actor is running");
        }
        assert_eq!(node.active(), actors, "the node hosts all of them");
        // Two periods later, as on any node, the measurements of idle actors are gone.
        for _ in 0..2 {
            runtime.snapshot(&Interest::Types {
                busy: [].into(),
                always: [].into(),
            });
        }
        inspect();
        drop(node);
    });
}
