//! Suspended turns are resumed by their caller if they are cheap, else by workers.

use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::common::{Gate, within};
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::{Interest, Runtime, Settings};
use elastin_types::CallError;
use serde::{Deserialize, Serialize};

/// Number of turns after which their cost is established: all of these are measured.
const KNOWN_AFTER: u64 = 32;

/// How long a turn computes in the test of CPU accounting.
const COMPUTE: Duration = Duration::from_millis(20);

const HOME: &str = "home";

#[derive(Actor, Serialize, Deserialize, Default)]
struct Guest {
    turns: u32,
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

fn is_worker(thread: &str) -> bool {
    thread.starts_with("elastin-work")
}

static GATES: [Gate; 6] = [const { Gate::new() }; 6];

#[handlers]
impl Guest {
    /// The threads on which it ran before and after it suspended.
    async fn wait(&mut self) -> Vec<String> {
        let mut threads = vec![thread()];
        for _ in 0..2 {
            tokio::task::yield_now().await;
            threads.push(thread());
        }
        self.turns += 1;
        threads
    }

    /// Calls another actor's `wait`.
    async fn call_wait(&mut self, ctx: &Ctx, other: u64) -> Vec<String> {
        let mut threads = ctx
            .actor::<Guest>(other)
            .wait()
            .await
            .expect("the other actor is reachable");
        threads.push(thread());
        threads
    }

    /// Suspends often; returns the thread on which it finished.
    async fn wait_often(&mut self) -> String {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        thread()
    }

    /// Passes a gate; returns the thread on which it then ran.
    async fn pass(&mut self, gate: usize) -> String {
        GATES[gate].passed().await;
        self.turns += 1;
        thread()
    }

    /// Computes after it has suspended.
    async fn compute_later(&mut self) {
        tokio::task::yield_now().await;
        let begun = Instant::now();
        while begun.elapsed() < COMPUTE {
            std::hint::spin_loop();
        }
    }

    /// Calls another actor's `compute_later`.
    async fn call_compute(&mut self, ctx: &Ctx, other: u64) {
        ctx.actor::<Guest>(other)
            .compute_later()
            .await
            .expect("the other actor is reachable");
    }

    async fn panic_later(&mut self) {
        tokio::task::yield_now().await;
        panic!("requested by the test");
    }

    fn turns(&self) -> u32 {
        self.turns
    }
}

fn tokio_named(name: &str) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .thread_name(name)
        .enable_all()
        .build()
        .unwrap()
}

fn runtime(resume_turn_max: Duration) -> Runtime {
    let settings = Settings {
        workers: 2,
        resume_turn_max,
        ..Settings::default()
    };
    let builder = Runtime::builder().register::<Guest>();
    builder.settings(settings).build().unwrap()
}

/// An actor whose turns are established as cheap, unless `resume_turn_max` is zero.
async fn known(runtime: &Runtime, key: u64) -> Ref<Guest> {
    let guest: Ref<Guest> = runtime.client().actor(key);
    for _ in 0..KNOWN_AFTER {
        guest.turns().await.expect("the actor is reachable");
    }
    guest
}

#[tokio::test]
async fn a_caller_resumes_its_suspended_turn() {
    let runtime = runtime(Duration::MAX);
    let home = tokio_named(HOME);
    let (one, _other) = (known(&runtime, 1).await, known(&runtime, 2).await);
    let called = home.spawn({
        let one = one.clone();
        async move { (one.wait().await, one.call_wait(2).await) }
    });
    let (alone, through) = within("both replies", called).await.unwrap();
    assert_eq!(alone.unwrap(), [HOME; 3]);
    assert_eq!(through.unwrap(), [HOME; 4]);
    let called = home.spawn(async move { one.wait_often().await });
    let often = within("the long turn", called).await.unwrap().unwrap();
    assert!(
        is_worker(&often),
        "a turn that suspends often must be resumed by workers, not by {often}"
    );
    home.shutdown_background();
}

#[tokio::test]
async fn workers_resume_turns_not_established_as_cheap() {
    for (runtime, is_known) in [(runtime(Duration::ZERO), true), (runtime(Duration::MAX), false)] {
        let guest = match is_known {
            true => known(&runtime, 1).await,
            false => runtime.client().actor(1),
        };
        let threads = within("the reply", guest.wait().into_future()).await.unwrap();
        assert!(threads[1..].iter().all(|thread| is_worker(thread)), "{threads:?}");
    }
}

#[tokio::test]
async fn a_turn_finishes_after_its_caller_is_dropped() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    let home = tokio_named(HOME);
    let (gate, waiting) = (&GATES[1], guest.clone());
    home.spawn(async move { waiting.pass(1).await });
    within("the turn", gate.reached(1)).await;
    // Waits until all its threads have ended.
    tokio::task::spawn_blocking(move || drop(home)).await.unwrap();
    gate.open();
    let next = within("the next turn", guest.turns().into_future()).await;
    assert_eq!(next, Ok(1), "a started turn must finish");
}

#[tokio::test]
async fn a_turn_finishes_if_its_woken_caller_is_dropped() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    {
        let mut call = pin!(guest.pass(2).into_future());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        GATES[2].open();
    }
    let next = within("the next turn", guest.turns().into_future()).await;
    assert_eq!(next, Ok(1));
}

#[tokio::test]
async fn workers_take_over_if_the_woken_caller_does_not_poll() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    let mut call = pin!(guest.pass(3).into_future());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    GATES[3].open();
    // Another caller does not wait for the first one.
    let next = within("the next turn", guest.turns().into_future()).await;
    assert_eq!(next, Ok(1));
    // The first caller finds its reply when it polls at last.
    let late = within("the reply", call).await.unwrap();
    assert!(is_worker(&late), "{late}");
}

#[tokio::test]
async fn a_callers_deadline_does_not_end_the_turn() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    let call = guest.pass(4).deadline(Duration::from_millis(5));
    assert_eq!(call.await, Err(CallError::DeadlineExceeded));
    GATES[4].open();
    let next = within("the next turn", guest.turns().into_future()).await;
    assert_eq!(next, Ok(1));
}

#[tokio::test]
async fn a_panic_in_a_caller_resumed_turn_is_contained() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    assert_eq!(guest.panic_later().await, Err(CallError::Panicked));
    assert_eq!(guest.turns().await, Ok(0));
    assert_eq!(runtime.stats().panics, 1);
}

#[tokio::test]
async fn a_waiting_call_may_move_to_another_task() {
    let runtime = runtime(Duration::MAX);
    let guest = known(&runtime, 1).await;
    let mut call = Box::pin({
        let guest = guest.clone();
        async move { guest.pass(5).await }
    });
    let first = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
    assert!(first);
    let other = tokio::spawn(call);
    within("the turn", GATES[5].reached(1)).await;
    GATES[5].open();
    assert!(within("the reply", other).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_caller_resumed_turn_is_charged_to_the_callee() {
    let runtime = runtime(Duration::MAX);
    let (caller, callee) = (known(&runtime, 1).await, known(&runtime, 2).await);
    runtime.snapshot(&Interest::All);
    caller.call_compute(2).await.unwrap();
    let snapshot = runtime.snapshot(&Interest::All);
    let used = |guest: &Ref<Guest>| {
        let stats = snapshot.actors.iter().find(|stats| stats.actor == *guest.id());
        stats.expect("the actor was active").used.cpu
    };
    assert!(
        used(&caller) < used(&callee) / 2.0,
        "{} of {}",
        used(&caller),
        used(&callee)
    );
}
