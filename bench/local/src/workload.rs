//! What is measured, and what a contender has to do for it.

use std::time::{Duration, Instant};

/// How many actors and clients the rows with many have.
pub const MANY: u64 = 1000;

/// How many messages a bounded mailbox takes.
pub const MAILBOX: usize = 1024;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// One caller, calls one after another, the actor idle.
    CallIdle,
    /// The same, and the handler awaits once.
    CallAwaits,
    /// One producer tells one actor, then waits until all is done.
    Tell,
    /// 1,000 clients call 1,000 actors; handlers complete at once.
    Many,
    /// The same, and the handlers await once.
    ManyAwait,
    /// 1,000 clients call one actor.
    Hot,
}

impl Row {
    pub const ALL: [Row; 6] = [
        Row::CallIdle,
        Row::CallAwaits,
        Row::Tell,
        Row::Many,
        Row::ManyAwait,
        Row::Hot,
    ];

    /// The name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Row::CallIdle => "call-idle",
            Row::CallAwaits => "call-awaits",
            Row::Tell => "tell",
            Row::Many => "many",
            Row::ManyAwait => "many-await",
            Row::Hot => "hot",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Row::CallIdle => "call, idle actor, one after another",
            Row::CallAwaits => "call, handler awaits once",
            Row::Tell => "tell, one producer, mailbox of 1,024",
            Row::Many => "1,000 clients, 1,000 actors",
            Row::ManyAwait => "1,000 clients, 1,000 actors, handlers await",
            Row::Hot => "1,000 clients, one actor",
        }
    }

    /// How many operations one measurement has, so that it takes some tenths of a second with the slowest.
    pub fn operations(self) -> u64 {
        match self {
            Row::CallIdle => 500_000,
            Row::CallAwaits => 100_000,
            Row::Tell => 500_000,
            Row::Many | Row::ManyAwait | Row::Hot => 1_000_000,
        }
    }
}

/// Runs a workload and gives the time it took, without setting up.
pub async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let begun = Instant::now();
    work.await;
    begun.elapsed()
}

/// Runs `MANY` clients as tasks, each with its part of the operations, and waits for all.
pub async fn clients<F, W>(operations: u64, client: F)
where
    F: Fn(u64, u64) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..MANY)
        .map(|index| tokio::spawn(client(index, operations / MANY)))
        .collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
}
