//! Lifecycle of activations: hooks, timers, passivation, saving, panics, shutdown, bad input.

use std::sync::Arc;
use std::time::Duration;

use crate::common::slow_store::SlowStore;
use crate::common::{eventually, within};
use bytes::Bytes;
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_actor::ReplySender;
use elastin_runtime::{BuildError, Runtime, SaveError, Settings};
use elastin_types::{
    CallError, CallId, Caller, Header, Message, Method, NodeId, NotDelivered, Rejected, SchemaError, Unknown,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

static EVENTS: Mutex<Vec<(String, &str)>> = Mutex::new(Vec::new());

fn events(key: &str) -> Vec<&'static str> {
    let events = EVENTS.lock();
    events
        .iter()
        .filter(|(of, _)| of == key)
        .map(|(_, event)| *event)
        .collect()
}

/// Delay of a timer that is stopped: long enough that this thread is not preempted until it fires.
const STOPPED_AFTER: Duration = Duration::from_millis(200);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Clerk {
    count: u64,
    ticks: u64,
}

#[handlers]
impl Clerk {
    #[on(activate)]
    async fn on_activate(&mut self, ctx: &Ctx) {
        tokio::task::yield_now().await;
        EVENTS.lock().push((ctx.key().to_string(), "activate"));
    }

    #[on(deactivate)]
    async fn on_deactivate(&mut self, ctx: &Ctx) {
        tokio::task::yield_now().await;
        EVENTS.lock().push((ctx.key().to_string(), "deactivate"));
    }

    fn add(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn leave(&mut self, ctx: &Ctx) {
        ctx.deactivate();
    }

    fn tick(&mut self) {
        self.ticks += 1;
    }

    fn ticks(&self) -> u64 {
        self.ticks
    }

    fn start_ticking(&mut self, ctx: &Ctx) {
        ctx.every(Duration::from_millis(1), ctx.me::<Clerk>().tick());
        ctx.after(Duration::from_millis(1), ctx.me::<Clerk>().tick());
        let stopped = ctx.after(STOPPED_AFTER, ctx.actor::<Clerk>("untouched").tick());
        ctx.stop_timer(stopped);
    }
}

#[tokio::test]
async fn hooks_run_around_an_activation() {
    let runtime = Runtime::builder().register::<Clerk>().workers(1).build().unwrap();
    let clerk: Ref<Clerk> = runtime.client().actor("hooks");
    assert_eq!(within("the reply", clerk.add().into_future()).await, Ok(1));
    assert_eq!(clerk.add().await, Ok(2));
    assert_eq!(events("hooks"), ["activate"]);
    clerk.leave().await.unwrap();
    eventually("the end of the activation", || runtime.active(clerk.id()).is_none()).await;
    assert_eq!(events("hooks"), ["activate", "deactivate"]);
    // The next call activates the actor again, from its default state.
    assert_eq!(clerk.add().await, Ok(1));
}

#[tokio::test]
async fn timers_tick_until_the_activation_ends() {
    let runtime = Runtime::builder().register::<Clerk>().workers(1).build().unwrap();
    let clerk: Ref<Clerk> = runtime.client().actor("timers");
    clerk.start_ticking().await.unwrap();
    within("five ticks", async { while clerk.ticks().await.unwrap() < 5 {} }).await;
    clerk.leave().await.unwrap();
    eventually("the end of the activation", || runtime.active(clerk.id()).is_none()).await;
    assert_eq!(clerk.ticks().await, Ok(0));
    tokio::time::sleep(STOPPED_AFTER).await;
    assert_eq!(runtime.active(runtime.client().actor::<Clerk>("untouched").id()), None);
}

#[tokio::test]
async fn idle_actors_are_passivated_despite_racing_calls() {
    let settings = Settings {
        idle_max: Some(Duration::from_millis(1)),
        workers: 1,
        ..Default::default()
    };
    let runtime = Runtime::builder()
        .register::<Clerk>()
        .settings(settings)
        .build()
        .unwrap();
    let clerks: Vec<Ref<Clerk>> = (0..20_u64)
        .map(|key| runtime.client().actor(format!("idle {key}")))
        .collect();
    for round in 0..200 {
        for (index, clerk) in clerks.iter().enumerate() {
            if (round + index) % 3 == 0 {
                let count = within("the reply", clerk.add().into_future()).await.unwrap();
                assert!(count >= 1);
            }
        }
        tokio::task::yield_now().await;
    }
    drop(clerks);
    eventually("all actors gone", || runtime.stats().activations == 0).await;
    assert_eq!(runtime.activations(), []);
}

#[tokio::test]
async fn a_shutdown_drains_mailboxes_and_runs_hooks() {
    let runtime = Runtime::builder().register::<Clerk>().workers(1).build().unwrap();
    let clerk: Ref<Clerk> = runtime.client().actor("shutdown");
    clerk.add().await.unwrap();
    for _ in 0..100 {
        clerk.tick().try_tell().unwrap();
    }
    assert!(runtime.shutdown(Duration::from_secs(20)).await);
    assert_eq!(events("shutdown"), ["activate", "deactivate"]);
    assert_eq!(runtime.stats().workers, 0);
    assert_eq!(
        clerk.add().await,
        Err(CallError::NotDelivered(NotDelivered::ShuttingDown))
    );
}

#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(name = "Savings", persist)]
struct Account {
    balance: i64,
}

#[handlers]
impl Account {
    fn pay_in(&mut self, amount: i64) -> i64 {
        self.balance += amount;
        self.balance
    }

    async fn pay_in_later(&mut self, amount: i64) -> i64 {
        tokio::task::yield_now().await;
        self.balance += amount;
        self.balance
    }

    fn balance(&self) -> i64 {
        self.balance
    }

    fn fail(&mut self) {
        self.balance = -1;
        panic!("requested by the test");
    }
}

#[tokio::test]
async fn a_reply_is_sent_after_the_change_is_saved() {
    let (store, mut saves) = SlowStore::new();
    let runtime = Runtime::builder()
        .register::<Account>()
        .workers(1)
        .remote(store.clone())
        .build()
        .unwrap();
    let account: Ref<Account> = runtime.client().actor(1);
    // Inline, and from the mailbox after an await.
    for (later, balance) in [(false, 5), (true, 10)] {
        let paying = tokio::spawn({
            let account = account.clone();
            async move {
                match later {
                    false => account.pay_in(5).await,
                    true => account.pay_in_later(5).await,
                }
            }
        });
        let (state, done) = within("a save", saves.recv()).await.unwrap();
        assert!(!paying.is_finished());
        store.keep(account.id(), state);
        done(Ok(()));
        assert_eq!(within("the reply", paying).await.unwrap(), Ok(balance));
    }
    // Reading saves nothing.
    assert_eq!(account.balance().await, Ok(10));
    assert!(saves.try_recv().is_err());
    // An unsaved change did not happen; a queued call sees the state from before.
    let paying = tokio::spawn({
        let account = account.clone();
        async move { account.pay_in(90).await }
    });
    let (_, done) = within("a save", saves.recv()).await.unwrap();
    let behind = tokio::spawn({
        let account = account.clone();
        async move { account.balance().await }
    });
    tokio::task::yield_now().await;
    done(Err(SaveError::Unavailable("the disk is full".into())));
    let not_saved = Err(CallError::Unknown(Unknown::NotSaved));
    assert_eq!(within("the outcome", paying).await.unwrap(), not_saved);
    assert_eq!(within("the reply", behind).await.unwrap(), Ok(10));
    // A panic does not affect the saved state.
    assert_eq!(account.fail().await, Err(CallError::Panicked));
    assert_eq!(account.balance().await, Ok(10));
}

#[tokio::test]
async fn a_local_persistent_actor_survives_passivation() {
    let settings = Settings {
        idle_max: Some(Duration::from_millis(1)),
        ..Default::default()
    };
    let runtime = Runtime::builder()
        .register::<Account>()
        .settings(settings)
        .build()
        .unwrap();
    let account: Ref<Account> = runtime.client().actor("kept");
    assert_eq!(account.pay_in(7).await, Ok(7));
    eventually("the passivation", || runtime.active(account.id()).is_none()).await;
    assert_eq!(account.balance().await, Ok(7));
}

#[tokio::test]
async fn bad_calls_are_rejected_with_names() {
    let runtime = Runtime::builder().register::<Clerk>().workers(1).build().unwrap();
    let account: Ref<Account> = runtime.client().actor(1);
    let unknown = Err(CallError::Rejected(Rejected::UnknownType("Savings".into())));
    assert_eq!(account.balance().await, unknown);

    let long = "k".repeat(1000);
    let clerk: Ref<Clerk> = runtime.client().actor(long);
    let too_long = Err(CallError::Rejected(Rejected::KeyTooLong { bytes: 1000 }));
    assert_eq!(clerk.add().await, too_long);

    let twice = Runtime::builder().register::<Clerk>().register::<Clerk>().build();
    assert!(matches!(twice, Err(BuildError::Schema(SchemaError::Duplicate(name))) if name == "Clerk"));
}

#[tokio::test]
async fn malformed_messages_are_rejected() {
    let runtime = Runtime::builder().register::<Account>().workers(1).build().unwrap();
    let account: Ref<Account> = runtime.client().actor(1);
    assert_eq!(account.balance().await, Ok(0));
    let epoch = runtime.active(account.id()).unwrap();
    let deliver = async |method: &str, body: &'static [u8]| {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let call = CallId {
            origin: NodeId(9),
            sequence: 1,
        };
        let message = Arc::new(Message {
            target: account.id().clone(),
            header: Header::of_call(call, Caller::Client(NodeId(9))),
            method: Method::of(method),
            body: Bytes::from_static(body),
        });
        let reply = Some(ReplySender::new(move |outcome| drop(sender.send(outcome))));
        runtime
            .deliver(elastin_runtime::InboundMessage { message, reply }, epoch)
            .unwrap();
        within("the outcome", receiver).await.unwrap()
    };
    // 14 is 7 in postcard's encoding of signed numbers.
    assert_eq!(deliver("pay_in", &[14]).await, Ok(Bytes::from_static(&[14])));
    let unknown = deliver("pay_out", &[14]).await.unwrap_err().to_string();
    assert!(unknown.contains("`Savings` has no function"), "{unknown}");
    let undecodable = deliver("pay_in", &[]).await.unwrap_err().to_string();
    assert!(
        undecodable.contains("the arguments of `pay_in` can't be decoded"),
        "{undecodable}"
    );
    assert_eq!(account.balance().await, Ok(7));
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct FailsToActivate {}

#[handlers]
impl FailsToActivate {
    #[on(activate)]
    fn fail(&mut self) {
        panic!("requested by the test");
    }

    fn ping(&mut self) {}
}

#[tokio::test]
async fn a_panicking_hook_fails_the_call_but_not_the_node() {
    let runtime = Runtime::builder()
        .register::<FailsToActivate>()
        .workers(1)
        .build()
        .unwrap();
    let actor: Ref<FailsToActivate> = runtime.client().actor(1);
    for _ in 0..3 {
        assert_eq!(
            within("the outcome", actor.ping().into_future()).await,
            Err(CallError::Panicked)
        );
    }
    // A call may find the actor inactive again right after the failed hook of an activation that it caused.
    assert!(runtime.stats().panics >= 3);
    assert_eq!(runtime.stats().activations, 0);
}

/// Panics in its hooks.
#[derive(Actor, Serialize, Deserialize, Default)]
struct PanickingHooks {}

#[handlers]
impl PanickingHooks {
    #[on(deactivate)]
    fn leaving(&mut self) {
        panic!("requested by the test");
    }

    #[on(before_move)]
    fn moving(&mut self) {
        panic!("requested by the test");
    }

    fn ping(&mut self) {}

    fn leave(&mut self, ctx: &Ctx) {
        ctx.deactivate();
    }
}

#[tokio::test]
async fn a_panic_in_the_last_hook_ends_the_activation() {
    let runtime = Runtime::builder()
        .register::<PanickingHooks>()
        .workers(1)
        .build()
        .unwrap();
    let panicking: Ref<PanickingHooks> = runtime.client().actor(1);
    panicking.leave().await.unwrap();
    eventually("the end of the activation", || runtime.active(panicking.id()).is_none()).await;
    assert_eq!(runtime.stats().panics, 1);
    // Before a move: the freeze fails, and the actor restarts at the next call.
    panicking.ping().await.unwrap();
    let epoch = runtime.active(panicking.id()).unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let deadline = runtime.now() + Duration::from_secs(10);
    runtime.freeze(
        panicking.id(),
        epoch,
        deadline,
        Box::new(move |image| drop(sender.send(image))),
    );
    let image = within("the freeze", receiver).await.unwrap();
    assert_eq!(image, Err(elastin_runtime::FreezeError::NotActive));
    assert_eq!(within("the reply", panicking.ping().into_future()).await, Ok(()));
}

/// Panics in its after-move hook.
#[derive(Actor, Serialize, Deserialize, Default)]
struct FailsAfterMove {}

#[handlers]
impl FailsAfterMove {
    #[on(after_move)]
    async fn arrive(&mut self) {
        tokio::task::yield_now().await;
        panic!("requested by the test");
    }

    fn ping(&mut self) {}
}

#[tokio::test]
async fn a_panic_after_a_move_does_not_affect_the_node() {
    let runtime = Runtime::builder()
        .register::<FailsAfterMove>()
        .workers(1)
        .build()
        .unwrap();
    let moved: Ref<FailsAfterMove> = runtime.client().actor(1);
    let image = elastin_runtime::StateImage {
        state: elastin_actor::encode_state(&FailsAfterMove {}).unwrap(),
        moved: true,
    };
    let epoch = elastin_types::ActivationEpoch::default();
    runtime.activate(moved.id(), epoch, Some(image), Vec::new()).unwrap();
    // The call runs before or after the hook's panic: the node survives either.
    let outcome = within("the outcome", moved.ping().into_future()).await;
    assert!(matches!(outcome, Ok(()) | Err(CallError::Panicked)), "{outcome:?}");
    eventually("the panic", || runtime.stats().panics == 1).await;
    assert_eq!(within("the reply", moved.ping().into_future()).await, Ok(()));
}

#[tokio::test]
async fn bad_tells_are_rejected_with_names() {
    let runtime = Runtime::builder().register::<Clerk>().workers(1).build().unwrap();
    let clerk: Ref<Clerk> = runtime.client().actor("k".repeat(1000));
    let too_long = Err(CallError::Rejected(Rejected::KeyTooLong { bytes: 1000 }));
    assert_eq!(clerk.add().tell().await, too_long);
    assert_eq!(clerk.add().try_tell(), too_long);
}
