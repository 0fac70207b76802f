//! What is measured.

use std::hint::black_box;
use std::sync::OnceLock;
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
    /// The same with a handler that is an `async fn` although it never waits.
    CallIdleAsync,
    /// The handler awaits once, so the call can't be answered at once.
    CallAwaits,
    CallAwaitsOutside,
    /// One producer tells one actor on one thread, then waits until all is done.
    Tell,
    /// The same with the producer on a thread of its own.
    TellThread,
    /// 1 µs of work in the producer and 1 µs in the actor for each message.
    Pipeline,
    /// 1,000 clients call 1,000 actors; handlers complete at once.
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

    /// How many operations one measurement has, so that it takes some tenths of a second with the slowest.
    pub fn operations(self) -> u64 {
        match self {
            Row::CallIdle | Row::CallIdleAsync | Row::Tell | Row::TellThread => 500_000,
            Row::CallAwaits | Row::CallAwaitsOutside | Row::Pipeline => 100_000,
            Row::Many | Row::ManyOutside | Row::ManyAwait | Row::ManyAwaitOutside | Row::Hot | Row::HotOutside => {
                1_000_000
            }
        }
    }

    /// How many threads everybody has.
    pub fn workers(self) -> usize {
        if self == Row::Tell { 1 } else { 2 }
    }

    /// Whether the instructions of an operation are worth counting: where callers wait for one another in a loop, they are others in
    /// every run, and under callgrind only one thread runs at a time.
    pub fn has_instructions(self) -> bool {
        self.of_peer() != Row::Hot
    }

    /// What a library does in this row: its callers are tasks in any case, and there is one kind of handler.
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

/// What a handler does besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Now,
    /// It awaits once.
    Later,
    /// It works for 1 µs.
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

/// An actor that counts, as its callers see it.
pub trait Counter: Clone + Send + Sync + 'static {
    fn call(&self, kind: Kind) -> impl Future<Output = u64> + Send;

    fn tell(&self, kind: Kind) -> impl Future<Output = ()> + Send;
}

/// Runs a row with actors whose callers are tasks. Gives the time without setting up.
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

/// Runs a workload and gives the time it took.
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

/// Never inlined: everybody runs the very same loop, whose speed depends on where in the program it lies.
#[inline(never)]
fn step(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}
