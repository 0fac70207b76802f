//! How turns share workers and end early: long turns, long mailboxes, cancelled calls, discarded activations, panicking
//! codecs.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::common::{Gate, within};
use bytes::Bytes;
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_runtime::{Grant, Remote, ReplySender, Runtime, SaveDone};
use elastin_types::{ActivationEpoch, ActorId, CallError, CallId, Message, Outcome, Unknown};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// How long a computing handler waits for its condition. Generous, because the machine may be busy.
const COMPUTE_MAX: Duration = Duration::from_secs(20);

#[derive(Actor, Serialize, Deserialize, Default)]
struct LongTurn {}

static RECEIVED: AtomicBool = AtomicBool::new(false);
static RAN_MEANWHILE: AtomicBool = AtomicBool::new(false);
static COMPUTED: Notify = Notify::const_new();

#[handlers]
impl LongTurn {
    /// Sends a message to another actor, and then computes until that one has run.
    fn tell_and_compute(&mut self, ctx: &Ctx) -> bool {
        ctx.actor::<LongTurn>("receiver")
            .note()
            .try_tell()
            .expect("the mailbox has room");
        let begun = Instant::now();
        while !RECEIVED.load(Ordering::SeqCst) && begun.elapsed() < COMPUTE_MAX {
            std::hint::spin_loop();
        }
        RECEIVED.load(Ordering::SeqCst)
    }

    fn note(&mut self) {
        RECEIVED.store(true, Ordering::SeqCst);
    }

    async fn start(&mut self, ctx: &Ctx) {
        let done = ctx.actor::<LongTurn>("computing").tell_and_compute().await;
        RAN_MEANWHILE.store(done == Ok(true), Ordering::SeqCst);
        COMPUTED.notify_one();
    }
}

#[tokio::test]
async fn a_tell_from_a_long_turn_is_run_by_another_worker() {
    let runtime = Runtime::builder().register::<LongTurn>().workers(2).build().unwrap();
    let first: Ref<LongTurn> = runtime.client().actor("first");
    // As a tell, so that the long turn runs on a worker and not on this thread.
    first.start().try_tell().unwrap();
    within("the end of the long turn", COMPUTED.notified()).await;
    assert!(
        RAN_MEANWHILE.load(Ordering::SeqCst),
        "the receiver waited for the long turn"
    );
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Heavy {
    done: u64,
}

static HEAVY_DONE: AtomicU64 = AtomicU64::new(0);
static HEAVY: Gate = Gate::new();

#[handlers]
impl Heavy {
    async fn wait(&mut self) {
        HEAVY.passed().await;
    }

    fn compute(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        self.done += 1;
        HEAVY_DONE.store(self.done, Ordering::SeqCst);
    }

    fn heavy_done(&self) -> u64 {
        HEAVY_DONE.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_long_mailbox_does_not_starve_other_actors() {
    const MESSAGES: u64 = 500;
    let runtime = Runtime::builder().register::<Heavy>().workers(1).build().unwrap();
    let heavy: Ref<Heavy> = runtime.client().actor("heavy");
    let light: Ref<Heavy> = runtime.client().actor("light");
    let waiting = tokio::spawn({
        let heavy = heavy.clone();
        async move { heavy.wait().await }
    });
    within("the handler", HEAVY.reached(1)).await;
    for _ in 0..MESSAGES {
        heavy.compute().try_tell().unwrap();
    }
    HEAVY.open();
    within("the first turn's end", waiting).await.unwrap().unwrap();
    // Through the mailbox, so that it needs the worker.
    light.compute().try_tell().unwrap();
    let done = within("the light actor", light.heavy_done().into_future())
        .await
        .unwrap();
    assert!(
        done < MESSAGES,
        "the light actor waited for all {done} turns of the heavy one"
    );
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Steps {
    begun: u64,
    ended: u64,
}

#[handlers]
impl Steps {
    async fn step(&mut self, waits: u32) -> u64 {
        self.begun += 1;
        for _ in 0..waits {
            tokio::task::yield_now().await;
        }
        self.ended += 1;
        self.ended
    }

    async fn relay(&mut self, ctx: &Ctx, waits: u32) -> Result<u64, CallError> {
        ctx.actor::<Steps>("last").step(waits).await
    }

    fn counts(&self) -> (u64, u64) {
        (self.begun, self.ended)
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_call_can_be_cancelled_at_every_await() {
    const WAITS: u32 = 4;
    let runtime = Runtime::builder().register::<Steps>().workers(2).build().unwrap();
    let (first, last): (Ref<Steps>, Ref<Steps>) = (runtime.client().actor("first"), runtime.client().actor("last"));
    for polls in 0..2 * WAITS {
        let mut call = Box::pin(first.relay(WAITS).into_future());
        for _ in 0..polls {
            if poll(call.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
        // Whatever the outcome, both actors continue, and started turns finish.
        let answer = within("an answer", first.relay(1).into_future()).await;
        assert!(answer.is_ok(), "{answer:?}");
        let (begun, ended) = within("the counts", last.counts().into_future()).await.unwrap();
        assert_eq!(begun, ended, "after {polls} polls");
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Superseded {}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

#[handlers]
impl Superseded {
    /// Discards its own activation while it runs.
    fn lose(&mut self, ctx: &Ctx) -> u64 {
        let runtime = RUNTIME.get().expect("the test has set the runtime");
        assert!(runtime.discard(&ctx.id(), ActivationEpoch::default()).is_empty());
        1
    }

    async fn lose_async(&mut self, ctx: &Ctx) -> u64 {
        self.lose(ctx)
    }

    fn alive(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_turn_of_a_discarded_activation_has_no_effect() {
    let runtime = Runtime::builder().register::<Superseded>().workers(1).build().unwrap();
    assert!(RUNTIME.set(runtime.clone()).is_ok());
    let superseded: Ref<Superseded> = runtime.client().actor(1);
    let lost = Err(CallError::Unknown(Unknown::NodeLost));
    assert_eq!(superseded.alive().await, Ok(true));
    assert_eq!(within("the outcome", superseded.lose().into_future()).await, lost);
    assert_eq!(superseded.alive().await, Ok(true), "there must be a new activation");
    assert_eq!(within("the outcome", superseded.lose_async().into_future()).await, lost);
    assert_eq!(superseded.alive().await, Ok(true));
    runtime.shutdown(Duration::from_secs(10)).await;
}

/// A `Remote` that never replies; it records sent and abandoned calls.
#[derive(Default)]
struct SilentRemote {
    sent: Mutex<Vec<(CallId, Option<ReplySender>)>>,
    abandoned: Mutex<Vec<CallId>>,
}

impl Remote for SilentRemote {
    fn may_activate_here(&self, _actor: &ActorId) -> Option<Grant> {
        None
    }

    fn send(&self, message: Arc<Message>, reply: Option<ReplySender>) {
        self.sent.lock().push((message.header.call, reply));
    }

    fn give_up(&self, call: CallId) {
        self.abandoned.lock().push(call);
    }

    fn reply(&self, _call: CallId, _outcome: Outcome) {}

    fn save(&self, _actor: &ActorId, _epoch: ActivationEpoch, _state: Bytes, done: SaveDone) {
        done(Ok(()));
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

/// A `Remote` that replies before `send` returns.
struct ImmediateRemote;

impl Remote for ImmediateRemote {
    fn may_activate_here(&self, _actor: &ActorId) -> Option<Grant> {
        None
    }

    fn send(&self, _message: Arc<Message>, reply: Option<ReplySender>) {
        reply
            .expect("a call has a reply sender")
            .complete(Err(CallError::Panicked));
    }

    fn reply(&self, _call: CallId, _outcome: Outcome) {}

    fn save(&self, _actor: &ActorId, _epoch: ActivationEpoch, _state: Bytes, done: SaveDone) {
        done(Ok(()));
    }

    fn passivated(&self, _actor: &ActorId, _epoch: ActivationEpoch) {}
}

#[tokio::test]
async fn immediate_replies_are_taken_until_the_budget_is_used() {
    let builder = Runtime::builder().remote(Arc::new(ImmediateRemote));
    let runtime = builder.workers(1).build().unwrap();
    // As in a client, the type is not registered in this process.
    let far: Ref<Steps> = runtime.client().actor("far");
    let answered = (0..100).take_while(|_| poll(Box::pin(far.counts().into_future()).as_mut()).is_ready());
    let answered = answered.count();
    assert!(
        (2..50).contains(&answered),
        "other tasks get their turn after {answered} calls"
    );
    assert!(
        poll(Box::pin(far.counts().into_future()).as_mut()).is_ready(),
        "the budget must be renewed after a pause"
    );
}

#[tokio::test]
async fn abandoned_calls_are_reported_to_the_remote() {
    let silent = Arc::new(SilentRemote::default());
    let builder = Runtime::builder().register::<Steps>().remote(silent.clone());
    let runtime = builder.workers(1).build().unwrap();
    let far: Ref<Steps> = runtime.client().actor("far");
    let mut dropped = Box::pin(far.counts().into_future());
    assert!(poll(dropped.as_mut()).is_pending());
    assert!(silent.abandoned.lock().is_empty(), "a waiting call was abandoned");
    drop(dropped);
    let late = far.counts().deadline(Duration::from_millis(1)).into_future();
    assert_eq!(within("the deadline", late).await, Err(CallError::DeadlineExceeded));
    let sent: Vec<CallId> = silent.sent.lock().iter().map(|(call, _)| *call).collect();
    assert_eq!((sent.len(), &*silent.abandoned.lock()), (2, &sent));
    // An answered call is not abandoned.
    let mut answered = Box::pin(far.counts().into_future());
    assert!(poll(answered.as_mut()).is_pending());
    let (_, reply) = silent.sent.lock().pop().expect("the call was sent");
    reply
        .expect("a call has a reply sender")
        .complete(Err(CallError::Panicked));
    drop(answered);
    assert_eq!(silent.abandoned.lock().len(), 2);
}

/// A value whose encoding panics.
#[derive(Debug, Deserialize)]
struct Unencodable;

impl Serialize for Unencodable {
    fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        panic!("requested by the test")
    }
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Taker {
    taken: u64,
}

#[handlers]
impl Taker {
    fn take(&mut self, _value: Unencodable) -> u64 {
        self.taken += 1;
        self.taken
    }
}

#[tokio::test]
async fn unencodable_arguments_work_on_the_same_node() {
    const CALLS: u64 = 10;
    let runtime = Runtime::builder().register::<Taker>().workers(1).build().unwrap();
    let taker: Ref<Taker> = runtime.client().actor(*b"a key of 16 byte");
    // Some of them are measured, which computes the size of their arguments.
    for call in 1..=CALLS {
        taker.take(Unencodable).tell().await.unwrap();
        let taken = within("the reply", taker.take(Unencodable).into_future()).await;
        assert_eq!(taken, Ok(2 * call));
    }
    assert_eq!(runtime.stats().panics, 0);
}

/// Fences its own node while it runs.
#[derive(Actor, Serialize, Deserialize, Default)]
struct Fencer {
    turns: u64,
}

static FENCED: OnceLock<Runtime> = OnceLock::new();

#[handlers]
impl Fencer {
    fn fence(&mut self) -> u64 {
        FENCED.get().expect("the test has set the runtime").fence(true);
        self.turns += 1;
        self.turns
    }
}

#[tokio::test]
async fn a_call_can_be_cancelled_while_its_reply_is_deferred() {
    let runtime = Runtime::builder().register::<Fencer>().workers(1).build().unwrap();
    assert!(FENCED.set(runtime.clone()).is_ok());
    let fencer: Ref<Fencer> = runtime.client().actor(1);
    let mut deferred = Box::pin(fencer.fence().into_future());
    assert!(poll(deferred.as_mut()).is_pending(), "a fenced node sent a reply");
    drop(deferred);
    runtime.fence(false);
    let mut deferred = Box::pin(fencer.fence().into_future());
    assert!(poll(deferred.as_mut()).is_pending());
    runtime.fence(false);
    assert_eq!(
        within("the deferred reply", deferred).await,
        Ok(2),
        "the cancelled call must have run"
    );
    runtime.shutdown(Duration::from_secs(10)).await;
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Narrow {
    seen: Vec<u64>,
}

static NARROW: Gate = Gate::new();

#[handlers]
impl Narrow {
    async fn wait(&mut self) {
        NARROW.passed().await;
    }

    fn note(&mut self, number: u64) {
        self.seen.push(number);
    }

    fn seen(&self) -> Vec<u64> {
        self.seen.clone()
    }
}

#[tokio::test]
async fn a_tell_can_be_cancelled_while_it_waits_for_room() {
    let settings = elastin_runtime::Settings {
        mailbox_max: 2,
        workers: 1,
        ..Default::default()
    };
    let builder = Runtime::builder().register::<Narrow>().settings(settings);
    let runtime = builder.build().unwrap();
    let narrow: Ref<Narrow> = runtime.client().actor(1);
    let waiting = tokio::spawn({
        let narrow = narrow.clone();
        async move { narrow.wait().await }
    });
    within("the handler", NARROW.reached(1)).await;
    for number in [1, 2] {
        narrow.note(number).try_tell().unwrap();
    }
    let mut cancelled = Box::pin(narrow.note(3).deadline(Duration::from_secs(60)).tell());
    assert!(poll(cancelled.as_mut()).is_pending());
    let mut kept = Box::pin(narrow.note(4).tell());
    assert!(poll(kept.as_mut()).is_pending());
    drop(cancelled);
    NARROW.open();
    within("room", kept).await.unwrap();
    within("the first turn's end", waiting).await.unwrap().unwrap();
    assert_eq!(
        within("the reply", narrow.seen().into_future()).await,
        Ok(vec![1, 2, 4])
    );
}
