//! Calls and one-way messages on one node: replies, order, exclusivity, cycles, deadlines, overload, panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::log::{Log, Sender, check_order};
use crate::common::{Gate, within};
use elastin::{Actor, CallFailed, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use elastin_types::{CallError, Overloaded, Rejected};
use serde::{Deserialize, Serialize};

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

    fn get(&self) -> u64 {
        self.count
    }

    fn halve(&mut self) -> Result<u64, String> {
        if self.count % 2 == 1 {
            return Err(format!("{} is odd", self.count));
        }
        self.count /= 2;
        Ok(self.count)
    }

    fn fail(&mut self) -> u64 {
        panic!("requested by the test")
    }

    async fn fail_later(&mut self) -> u64 {
        tokio::task::yield_now().await;
        panic!("requested by the test")
    }
}

fn runtime() -> Runtime {
    Runtime::builder()
        .settings(crate::common::inline_settings())
        .register::<Counter>()
        .register::<Log>()
        .register::<Sender>()
        .register::<Exclusive>()
        .register::<Loop>()
        .workers(2)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_call_returns_the_reply() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("a");
    assert_eq!(counter.add(2).await, Ok(2));
    assert_eq!(counter.add_later(3).await, Ok(5));
    assert_eq!(counter.get().await, Ok(5));
    assert_eq!(counter.halve().await, Err(CallFailed::Application("5 is odd".into())));
    counter.add(1).tell().await.unwrap();
    assert_eq!(counter.halve().await, Ok(3));
    // Another reference to the same actor, and another actor.
    assert_eq!(runtime.client().actor::<Counter>("a").get().await, Ok(3));
    assert_eq!(runtime.client().actor::<Counter>("b").get().await, Ok(0));
    assert_eq!(runtime.stats().activations, 2);
}

#[test]
fn a_runtime_works_outside_of_tokio() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor(7);
    let call = async move { counter.add_later(4).await };
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || sender.send(waiting.block_on(call)));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(4));
}

#[tokio::test]
async fn a_panic_is_contained_and_the_actor_restarts() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("a");
    assert_eq!(counter.add(2).await, Ok(2));
    assert_eq!(counter.fail().await, Err(CallError::Panicked));
    assert_eq!(counter.add(1).await, Ok(1));
    assert_eq!(counter.fail_later().await, Err(CallError::Panicked));
    assert_eq!(within("the reply", counter.add(5).into_future()).await, Ok(5));
    assert_eq!(runtime.stats().panics, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_one_sender_stay_in_order() {
    let runtime = runtime();
    let log: Ref<Log> = runtime.client().actor("log");
    check_order(&runtime, &log, 8, 2000).await;
}

/// Counts turns that run at the same time.
static INSIDE: AtomicU32 = AtomicU32::new(0);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Exclusive {
    turns: u64,
}

#[handlers]
impl Exclusive {
    async fn enter(&mut self, wait: bool) -> u64 {
        assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two turns ran concurrently");
        if wait {
            tokio::task::yield_now().await;
        }
        assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1);
        self.turns += 1;
        self.turns
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_one_actor_never_overlap() {
    let runtime = runtime();
    let mut callers = Vec::new();
    for caller in 0..8 {
        let exclusive: Ref<Exclusive> = runtime.client().actor(0);
        callers.push(tokio::spawn(async move {
            for call in 0..2000 {
                exclusive.enter((caller + call) % 3 == 0).await.unwrap();
            }
        }));
    }
    for caller in callers {
        within("all calls", caller).await.unwrap();
    }
    assert_eq!(runtime.client().actor::<Exclusive>(0).enter(false).await, Ok(16_001));
    assert_eq!(runtime.stats().panics, 0);
}

/// Calls itself through any number of others.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Loop {
    next: Option<Ref<Loop>>,
}

#[handlers]
impl Loop {
    fn set_next(&mut self, next: Ref<Loop>) {
        self.next = Some(next);
    }

    async fn around(&mut self, wait: bool) -> Result<u64, CallError> {
        if wait {
            tokio::task::yield_now().await;
        }
        let next = self.next.as_ref().expect("the test has set it");
        match next.around(wait).await {
            Ok(depth) => Ok(depth + 1),
            Err(CallFailed::Application(error) | CallFailed::Call(error)) => Err(error),
        }
    }

    async fn tell_self(&mut self, ctx: &Ctx) -> Result<(), CallError> {
        ctx.me::<Loop>().set_next(ctx.actor("other")).tell().await
    }

    fn next_key(&self) -> Option<String> {
        self.next.as_ref().map(|next| next.id().key.to_string())
    }

    async fn descend(&mut self, ctx: &Ctx, levels: u64) -> Result<u64, CallError> {
        if levels == 0 {
            return Ok(0);
        }
        match ctx.actor::<Loop>(levels).descend(levels - 1).await {
            Ok(depth) => Ok(depth + 1),
            Err(CallFailed::Application(error) | CallFailed::Call(error)) => Err(error),
        }
    }
}

#[tokio::test]
async fn a_call_cycle_is_an_error_not_a_deadlock() {
    let runtime = runtime();
    for length in 1..4 {
        for wait in [false, true] {
            let actor = |key| runtime.client().actor::<Loop>(format!("{length}-{wait}-{key}"));
            for key in 0..length {
                actor(key).set_next(actor((key + 1) % length)).await.unwrap();
            }
            let outcome = within("the cycle", actor(0).around(wait).into_future()).await;
            assert_eq!(outcome, Err(CallFailed::Application(CallError::CallCycle)));
        }
    }
}

#[tokio::test]
async fn an_actor_may_tell_itself() {
    let runtime = runtime();
    let actor: Ref<Loop> = runtime.client().actor("me");
    actor.tell_self().await.unwrap();
    assert_eq!(actor.next_key().await, Ok(Some("other".into())));
}

#[tokio::test]
async fn calls_nest_beyond_the_inline_depth_limit() {
    let runtime = runtime();
    let levels = u64::from(elastin_runtime::INLINE_DEPTH_MAX) * 5;
    let top: Ref<Loop> = runtime.client().actor("top");
    assert_eq!(within("the chain", top.descend(levels).into_future()).await, Ok(levels));
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Gated {}

static GATE: Gate = Gate::new();

#[handlers]
impl Gated {
    async fn wait(&mut self) -> u64 {
        GATE.passed().await;
        1
    }

    fn ping(&mut self) {}
}

#[tokio::test]
async fn a_full_mailbox_rejects_calls_and_delays_tells() {
    let settings = elastin_runtime::Settings {
        mailbox_max: 4,
        workers: 1,
        ..Default::default()
    };
    let runtime = Runtime::builder()
        .register::<Gated>()
        .settings(settings)
        .build()
        .unwrap();
    let gated: Ref<Gated> = runtime.client().actor(1);
    let waiting = tokio::spawn({
        let gated = gated.clone();
        async move { gated.wait().await }
    });
    within("the handler", GATE.reached(1)).await;
    for _ in 0..4 {
        gated.ping().try_tell().unwrap();
    }
    let overloaded = CallError::Overloaded(Overloaded::Actor);
    assert_eq!(gated.ping().try_tell(), Err(overloaded.clone()));
    assert_eq!(gated.ping().await, Err(overloaded.clone()));
    assert_eq!(
        gated.ping().deadline(Duration::from_millis(5)).tell().await,
        Err(overloaded)
    );
    let telling = tokio::spawn({
        let gated = gated.clone();
        async move { gated.ping().tell().await }
    });
    tokio::task::yield_now().await;
    assert!(!telling.is_finished());
    GATE.open();
    within("room", telling).await.unwrap().unwrap();
    assert_eq!(within("the reply", waiting).await.unwrap(), Ok(1));
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct SelfFlooder {}

#[handlers]
impl SelfFlooder {
    /// Sends itself more messages than its mailbox holds, while none of them can run.
    async fn flood(&mut self, ctx: &Ctx) -> Result<(), CallError> {
        loop {
            ctx.me::<SelfFlooder>().nod().tell().await?;
        }
    }

    fn nod(&mut self) {}
}

#[tokio::test]
async fn a_self_blocked_tell_ends_at_the_default_deadline() {
    let settings = elastin_runtime::Settings {
        default_deadline: Some(Duration::from_millis(5)),
        ..Default::default()
    };
    let builder = Runtime::builder().register::<SelfFlooder>().settings(settings);
    let runtime = builder.build().unwrap();
    let flooder: Ref<SelfFlooder> = runtime.client().actor(1);
    let flood = flooder.flood().deadline(Duration::from_secs(60)).into_future();
    let overloaded = CallError::Overloaded(Overloaded::Actor);
    assert_eq!(within("the end", flood).await, Err(CallFailed::Application(overloaded)));
}

static SLOW_GATE: Gate = Gate::new();

#[derive(Actor, Serialize, Deserialize, Default)]
struct Slow {
    seen: Vec<u64>,
}

#[handlers]
impl Slow {
    async fn wait(&mut self) {
        SLOW_GATE.passed().await;
    }

    fn note(&mut self, number: u64) {
        self.seen.push(number);
    }

    fn seen(&self) -> Vec<u64> {
        self.seen.clone()
    }

    fn time_left(&self, ctx: &Ctx) -> Option<Duration> {
        ctx.time_left()
    }
}

#[tokio::test]
async fn late_and_cancelled_calls_do_not_run() {
    let runtime = Runtime::builder().register::<Slow>().workers(1).build().unwrap();
    let slow: Ref<Slow> = runtime.client().actor(1);
    let left = slow
        .time_left()
        .deadline(Duration::from_secs(60))
        .await
        .unwrap()
        .unwrap();
    assert!(
        left <= Duration::from_secs(60) && left > Duration::from_secs(50),
        "{left:?}"
    );
    assert_eq!(slow.time_left().await, Ok(None));

    let waiting = tokio::spawn({
        let slow = slow.clone();
        async move { slow.wait().await }
    });
    within("the handler", SLOW_GATE.reached(1)).await;
    let late = slow.note(1).deadline(Duration::from_millis(5));
    assert_eq!(late.await, Err(CallError::DeadlineExceeded));
    let mut cancelled = Box::pin(slow.note(2).into_future());
    assert!(futures_poll(cancelled.as_mut()).is_pending());
    drop(cancelled);
    slow.note(3).try_tell().unwrap();
    SLOW_GATE.open();
    within("the handler's end", waiting).await.unwrap().unwrap();
    // Neither the late nor the cancelled call ran.
    assert_eq!(slow.seen().await, Ok(vec![3]));
}

fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    future.poll(&mut context)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_can_be_added_and_removed_under_load() {
    let runtime = runtime();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut callers = Vec::new();
    for caller in 0..4_u64 {
        let (client, stop) = (runtime.client(), stop.clone());
        callers.push(tokio::spawn(async move {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                let counter: Ref<Counter> = client.actor(calls % 16);
                counter.add_later(1).await.unwrap();
                calls += 1;
            }
            (caller, calls)
        }));
    }
    for workers in [1, 4, 2, 6, 1, 3] {
        runtime.set_workers(workers).unwrap();
        within("the number of threads", async {
            while runtime.stats().workers != workers {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let before = runtime.stats().turns;
        within("progress", async {
            while runtime.stats().turns < before + 100 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = 0;
    for caller in callers {
        all += within("the callers", caller).await.unwrap().1;
    }
    let mut counted = 0;
    for key in 0..16_u64 {
        counted += runtime.client().actor::<Counter>(key).get().await.unwrap();
    }
    assert_eq!(counted, all);
}

/// Keeps calling an idle actor until the test stops it.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Greedy {}

static STOPPED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

#[handlers]
impl Greedy {
    async fn call_until_stopped(&mut self, ctx: &Ctx) -> u64 {
        let counter: Ref<Counter> = ctx.actor("greedy");
        let mut calls = 0;
        while !STOPPED.load(Ordering::Relaxed) {
            counter.add(1).await.unwrap();
            calls += 1;
        }
        calls
    }
}

#[tokio::test]
async fn an_actor_making_only_inline_calls_starves_no_other() {
    let runtime = Runtime::builder()
        .register::<Greedy>()
        .register::<Counter>()
        .workers(1)
        .build()
        .unwrap();
    let greedy: Ref<Greedy> = runtime.client().actor(1);
    let calling = tokio::spawn(async move { greedy.call_until_stopped().await });
    tokio::task::yield_now().await;
    // These need the only worker, because their handlers suspend.
    let other: Ref<Counter> = runtime.client().actor("other");
    for count in 1..=100 {
        assert_eq!(within("a turn", other.add_later(1).into_future()).await, Ok(count));
    }
    STOPPED.store(true, Ordering::Relaxed);
    assert!(within("the end", calling).await.unwrap().unwrap() > 0);
}

#[tokio::test]
async fn calls_can_be_joined_and_selected() {
    let runtime = runtime();
    let (one, other): (Ref<Counter>, Ref<Counter>) = (runtime.client().actor("one"), runtime.client().actor("other"));
    let joined = async { tokio::join!(one.add_later(1), other.add(2), one.get()) };
    assert_eq!(within("the replies", joined).await, (Ok(1), Ok(2), Ok(1)));
    let tried = async { tokio::try_join!(one.add(1), other.add_later(2)) };
    assert_eq!(within("the replies", tried).await, Ok((2, 4)));
    let quicker = async {
        tokio::select! {
            reply = one.add(1) => reply,
            () = std::future::pending() => unreachable!("a pending future never completes"),
        }
    };
    assert_eq!(within("the reply", quicker).await, Ok(3));
}

#[tokio::test]
async fn calling_an_unbound_reference_explains_how_to_bind_it() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("decoded");
    let unbound: Ref<Counter> = Ref::from_id(counter.id().clone()).unwrap();
    let error = CallError::Rejected(Rejected::Unbound("Counter".into()));
    assert!(error.to_string().contains("`Client::bind`"), "{error}");
    assert_eq!(unbound.add(1).await, Err(error.clone()));
    assert_eq!(
        unbound.add(1).deadline(Duration::from_secs(1)).await,
        Err(error.clone())
    );
    assert_eq!(unbound.add(1).tell().await, Err(error.clone()));
    assert_eq!(unbound.add(1).try_tell(), Err(error));
    assert_eq!(runtime.client().bind(&unbound).add(1).await, Ok(1));
}
