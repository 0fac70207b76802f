//! Many callers of one actor, and recursive calls across actors.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::{Runtime, Settings};
use serde::{Deserialize, Serialize};

const CALLERS: u64 = 100;
const CALLS: u64 = 500;

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

    /// Sets this counter to its depth, and returns the sum of all counters down to zero.
    async fn add_up(&mut self, ctx: &Ctx, depth: u64, waits: bool) -> u64 {
        self.count = depth;
        if waits {
            tokio::task::yield_now().await;
        }
        if depth == 0 {
            return 0;
        }
        let below: Ref<Counter> = ctx.actor(depth - 1);
        // Twice: the second call reuses the pooled turn of the first.
        let first = below.add_up(depth - 1, waits).await.expect("the actor is reachable");
        let second = below.add_up(depth - 1, waits).await.expect("the actor is reachable");
        assert_eq!(first, second);
        self.count + second
    }

    async fn add_later(&mut self, n: u64) -> u64 {
        tokio::task::yield_now().await;
        self.count += n;
        self.count
    }

    async fn fail_if(&mut self, fails: bool) -> String {
        assert!(!fails, "requested by the test");
        format!("{} so far", self.count)
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Caller {}

#[handlers]
impl Caller {
    async fn call(&mut self, counter: Ref<Counter>) {
        for _ in 0..CALLS {
            counter.add(1).await.expect("the actor is reachable");
        }
    }
}

fn runtime() -> Runtime {
    let builder = Runtime::builder().register::<Counter>().register::<Caller>();
    let settings = Settings {
        workers: 2,
        // Cheap in a debug build, too.
        inline_turn_max: Duration::from_secs(1),
        ..Settings::default()
    };
    builder.settings(settings).build().expect("the runtime starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_calls_to_a_hot_actor_bypass_the_mailbox() {
    let runtime = runtime();
    let client = runtime.client();
    let counter: Ref<Counter> = client.actor("hot");
    let call = |key| {
        let (caller, counter): (Ref<Caller>, _) = (client.actor(key), counter.clone());
        tokio::spawn(async move { caller.call(counter).await })
    };
    let calls: Vec<_> = (0..CALLERS).map(call).collect();
    for call in calls {
        call.await
            .expect("the task does not panic")
            .expect("the actor is reachable");
    }
    assert_eq!(counter.add(0).await, Ok(CALLERS * CALLS));
    let queued = runtime.stats().turns;
    assert!(queued < CALLERS * CALLS / 2, "{queued} calls were enqueued");
}

#[tokio::test]
async fn recursive_calls_keep_their_own_arguments() {
    let runtime = runtime();
    let top: Ref<Counter> = runtime.client().actor(6);
    for waits in [false, true, false] {
        assert_eq!(top.add_up(6, waits).await, Ok(6 + 5 + 4 + 3 + 2 + 1));
    }
}

#[tokio::test]
async fn a_call_after_a_cancelled_one_gets_its_own_reply() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("cancelled");
    for round in 0..100 {
        let mut cancelled = counter.add_later(1).into_future();
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut cancelled).poll(cx))).await;
        assert!(polled.is_pending());
        drop(cancelled);
        assert_eq!(
            counter.add_later(1).await,
            Ok(2 * round + 2),
            "a started turn must finish"
        );
    }
}

#[tokio::test]
async fn a_call_after_a_panic_succeeds() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("fails");
    for _ in 0..3 {
        assert_eq!(counter.fail_if(false).await, Ok("0 so far".to_owned()));
        assert!(counter.fail_if(true).await.is_err());
        assert_eq!(counter.add(0).await, Ok(0));
    }
}
