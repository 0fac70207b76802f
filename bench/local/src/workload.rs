//! The workloads.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number of actors and clients in the rows with many.
pub const MANY: u64 = 1000;

/// The capacity of a bounded mailbox.
pub const MAILBOX: usize = 1024;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// One caller, sequential calls, the actor idle.
    CallIdle,
    /// The same with a handler that is an `async fn` but never awaits.
    CallIdleAsync,
    /// The handler awaits once, so the call can't complete inline.
    CallAwaits,
    CallAwaitsOutside,
    /// One producer tells one actor on one thread, then waits until all messages are processed.
    Tell,
    /// The same with the producer on a thread of its own.
    TellThread,
    /// 1 µs of work in the producer and 1 µs in the actor for each message.
    Pipeline,
    /// 1,000 clients call 1,000 actors; handlers complete without awaiting.
    Many,
    ManyOutside,
    /// The same, and the handlers await once.
    ManyAwait,
    ManyAwaitOutside,
    /// 1,000 clients call one actor.
    Hot,
    HotOutside,
}

impl Row {
    pub const ALL: [Row; 13] = [
        Row::CallIdle,
        Row::CallIdleAsync,
        Row::CallAwaits,
        Row::CallAwaitsOutside,
        Row::Tell,
        Row::TellThread,
        Row::Pipeline,
        Row::Many,
        Row::ManyOutside,
        Row::ManyAwait,
        Row::ManyAwaitOutside,
        Row::Hot,
        Row::HotOutside,
    ];

    /// The name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Row::CallIdle => "call-idle",
            Row::CallIdleAsync => "call-idle-async",
            Row::CallAwaits => "call-awaits",
            Row::CallAwaitsOutside => "call-awaits-outside",
            Row::Tell => "tell",
            Row::TellThread => "tell-thread",
            Row::Pipeline => "pipeline",
            Row::Many => "many",
            Row::ManyOutside => "many-outside",
            Row::ManyAwait => "many-await",
            Row::ManyAwaitOutside => "many-await-outside",
            Row::Hot => "hot",
            Row::HotOutside => "hot-outside",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Row::CallIdle => "call, idle actor",
            Row::CallIdleAsync => "call, idle actor, async handler",
            Row::CallAwaits => "call, handler awaits once",
            Row::CallAwaitsOutside => "call, handler awaits once, from outside",
            Row::Tell => "tell on one thread, mailbox of 1,024",
            Row::TellThread => "tell from a thread of its own",
            Row::Pipeline => "pipeline of 1 µs and 1 µs",
            Row::Many => "1,000 clients, 1,000 actors",
            Row::ManyOutside => "1,000 clients outside, 1,000 actors",
            Row::ManyAwait => "1,000 clients, 1,000 actors, await",
            Row::ManyAwaitOutside => "1,000 clients outside, 1,000 actors, await",
            Row::Hot => "1,000 clients, one actor",
            Row::HotOutside => "1,000 clients outside, one actor",
        }
    }

    /// The number of operations of a measurement, so that the slowest contender takes some tenths of a second.
    pub fn operations(self) -> u64 {
        match self {
            Row::CallIdle | Row::CallIdleAsync | Row::Tell | Row::TellThread => 500_000,
            Row::CallAwaits | Row::CallAwaitsOutside | Row::Pipeline => 100_000,
            Row::Many | Row::ManyOutside | Row::ManyAwait | Row::ManyAwaitOutside | Row::Hot | Row::HotOutside => {
                1_000_000
            }
        }
    }

    /// The number of worker threads of every contender.
    pub fn workers(self) -> usize {
        if self == Row::Tell { 1 } else { 2 }
    }

    /// Whether counting instructions is meaningful. Where callers wait for one another in a loop, the counts differ in
    /// every run, and callgrind runs only one thread at a time.
    pub fn has_instructions(self) -> bool {
        self.of_peer() != Row::Hot
    }

    /// The row that a library runs instead: its callers are always tasks, and there is one kind of handler.
    pub fn of_peer(self) -> Row {
        match self {
            Row::CallIdleAsync => Row::CallIdle,
            Row::CallAwaitsOutside => Row::CallAwaits,
            Row::ManyOutside => Row::Many,
            Row::ManyAwaitOutside => Row::ManyAwait,
            Row::HotOutside => Row::Hot,
            other => other,
        }
    }
}

/// The work of a handler besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Now,
    /// Awaits once.
    Later,
    /// Works for 1 µs.
    Work,
}

impl Kind {
    pub async fn run(self) {
        match self {
            Kind::Now => {}
            Kind::Later => tokio::task::yield_now().await,
            Kind::Work => work(),
        }
    }
}

/// An actor that counts, from the perspective of its callers.
pub trait Counter: Clone + Send + Sync + 'static {
    fn call(&self, kind: Kind) -> impl Future<Output = u64> + Send;

    fn tell(&self, kind: Kind) -> impl Future<Output = ()> + Send;
}

/// Runs a row with tasks as callers. Returns the time without setup.
pub async fn run<C: Counter>(row: Row, counters: &[C], operations: u64) -> Duration {
    let first = counters[0].clone();
    match row.of_peer() {
        Row::CallIdle => timed(call(first, operations, Kind::Now)).await,
        Row::CallAwaits => timed(call(first, operations, Kind::Later)).await,
        Row::Tell => timed(tell(first, operations, Kind::Now)).await,
        Row::TellThread => {
            let handle = tokio::runtime::Handle::current();
            let producer = move || handle.block_on(timed(tell(first, operations, Kind::Now)));
            let thread = tokio::task::spawn_blocking(producer);
            thread.await.expect("the producer does not panic")
        }
        Row::Pipeline => timed(tell(first, operations, Kind::Work)).await,
        Row::Many => timed(clients(operations, |index| &counters[index], Kind::Now)).await,
        Row::ManyAwait => timed(clients(operations, |index| &counters[index], Kind::Later)).await,
        Row::Hot => timed(clients(operations, |_| &first, Kind::Now)).await,
        _ => unreachable!("a row of a peer"),
    }
}

async fn call<C: Counter>(counter: C, calls: u64, kind: Kind) {
    for _ in 0..calls {
        counter.call(kind).await;
    }
}

async fn tell<C: Counter>(counter: C, tells: u64, kind: Kind) {
    for _ in 0..tells {
        if kind == Kind::Work {
            work();
        }
        counter.tell(kind).await;
    }
    counter.call(Kind::Now).await;
}

/// Runs `MANY` clients as tasks, each with its part of the operations, and waits for all.
async fn clients<'a, C: Counter>(operations: u64, of: impl Fn(usize) -> &'a C, kind: Kind) {
    let each = operations / MANY;
    let start = |index| tokio::spawn(call(of(index).clone(), each, kind));
    let tasks: Vec<_> = (0..MANY as usize).map(start).collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
}

/// Runs a workload and returns the time taken.
pub async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let begun = Instant::now();
    work.await;
    begun.elapsed()
}

/// Works for about 1 µs.
pub fn work() {
    static STEPS: OnceLock<u64> = OnceLock::new();
    let steps = *STEPS.get_or_init(|| {
        const TRIED: u64 = 10_000_000;
        let begun = Instant::now();
        step(TRIED);
        (TRIED as f64 / (begun.elapsed().as_secs_f64() * 1e6)) as u64
    });
    step(steps);
}

/// Never inlined: every contender runs the same loop, whose speed depends on its alignment in the program.
#[inline(never)]
fn step(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}
