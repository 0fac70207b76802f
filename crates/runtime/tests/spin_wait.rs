//! Many callers of one actor, and calls of one function within another.

extern crate elastin_actor as elastin;

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

    /// Adds up what all counters below this one have, this one included, which is set to its own depth.
    async fn add_up(&mut self, ctx: &Ctx, depth: u64, waits: bool) -> u64 {
        self.count = depth;
        if waits {
            tokio::task::yield_now().await;
        }
        if depth == 0 {
            return 0;
        }
        let below: Ref<Counter> = ctx.actor(depth - 1);
        // Twice: the second time there is the turn of the first one to be used again.
        let first = below.add_up(depth - 1, waits).await.expect("it is there");
        let second = below.add_up(depth - 1, waits).await.expect("it is there");
        assert_eq!(first, second);
        self.count + second
    }

    async fn add_later(&mut self, n: u64) -> u64 {
        tokio::task::yield_now().await;
        self.count += n;
        self.count
    }

    async fn fail_if(&mut self, fails: bool) -> String {
        assert!(!fails, "as asked");
        format!("{} so far", self.count)
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Caller {}

#[handlers]
impl Caller {
    async fn call(&mut self, counter: Ref<Counter>) {
        for _ in 0..CALLS {
            counter.add(1).await.expect("it is there");
        }
    }
}

fn runtime() -> Runtime {
    let builder = Runtime::builder().register::<Counter>().register::<Caller>();
    let settings = Settings {
        workers: 2,
        // Brief in a debug build, too.
        brief_max: Duration::from_secs(1),
        ..Settings::default()
    };
    builder.settings(settings).build().expect("the runtime starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_of_one_actor_are_all_served_and_most_need_no_mailbox() {
    let runtime = runtime();
    let client = runtime.client();
    let counter: Ref<Counter> = client.actor("hot");
    let call = |key| {
        let (caller, counter): (Ref<Caller>, _) = (client.actor(key), counter.clone());
        tokio::spawn(async move { caller.call(counter).await })
    };
    let calls: Vec<_> = (0..CALLERS).map(call).collect();
    for call in calls {
        call.await.expect("it does not panic").expect("it is there");
    }
    assert_eq!(counter.add(0).await, Ok(CALLERS * CALLS));
    let queued = runtime.stats().turns;
    assert!(queued < CALLERS * CALLS / 2, "{queued} calls took the mailbox");
}

#[tokio::test]
async fn a_function_that_calls_itself_in_others_gets_its_own_arguments_back() {
    let runtime = runtime();
    let top: Ref<Counter> = runtime.client().actor(6);
    for waits in [false, true, false] {
        assert_eq!(top.add_up(6, waits).await, Ok(6 + 5 + 4 + 3 + 2 + 1));
    }
}

#[tokio::test]
async fn a_call_after_one_that_was_given_up_gets_its_own_reply() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("given up");
    for round in 0..100 {
        let mut given_up = counter.add_later(1).into_future();
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut given_up).poll(cx))).await;
        assert!(polled.is_pending());
        drop(given_up);
        assert_eq!(
            counter.add_later(1).await,
            Ok(2 * round + 2),
            "a turn that has begun goes on"
        );
    }
}

#[tokio::test]
async fn a_call_after_one_that_panicked_is_like_any_other() {
    let runtime = runtime();
    let counter: Ref<Counter> = runtime.client().actor("fails");
    for _ in 0..3 {
        assert_eq!(counter.fail_if(false).await, Ok("0 so far".to_owned()));
        assert!(counter.fail_if(true).await.is_err());
        assert_eq!(counter.add(0).await, Ok(0));
    }
}
