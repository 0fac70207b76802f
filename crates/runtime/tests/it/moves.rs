//! Moving activations between two runtimes: no message is lost, duplicated or reordered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::pair::Pair;
use crate::common::{Gate, within};
use elastin::{Actor, Ctx, Ref, handlers};
use elastin_clock::Clock;
use elastin_runtime::{FreezeError, StateImage};
use elastin_types::{CallError, NotDelivered, Unknown};
use serde::{Deserialize, Serialize};

const WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Log {
    lines: Vec<(u64, u64)>,
    moves: u64,
}

#[handlers]
impl Log {
    fn append(&mut self, sender: u64, line: u64) -> u64 {
        self.lines.push((sender, line));
        line
    }

    async fn append_slowly(&mut self, sender: u64, line: u64) -> u64 {
        tokio::task::yield_now().await;
        self.lines.push((sender, line));
        line
    }

    fn lines(&self) -> Vec<(u64, u64)> {
        self.lines.clone()
    }

    fn moves(&self) -> (u64, u64) {
        (self.moves, 0)
    }

    fn node(&self, ctx: &Ctx) -> u64 {
        ctx.node().0
    }

    #[on(before_move)]
    async fn leaving(&mut self) {
        tokio::task::yield_now().await;
        self.moves += 1;
    }

    #[on(after_move)]
    fn arrived(&mut self) {
        self.moves += 1000;
    }
}

#[tokio::test]
async fn a_move_transfers_the_state_and_runs_the_hooks() {
    let pair = Pair::start(|builder| builder.register::<Log>());
    let log: Ref<Log> = pair.runtime(0).client().actor("log");
    log.append(0, 1).await.unwrap();
    assert_eq!(log.node().await, Ok(1));
    assert!(pair.move_over(log.id(), WAIT_MAX).await);
    assert_eq!(within("the reply", log.node().into_future()).await, Ok(2));
    assert_eq!(log.append(0, 2).await, Ok(2));
    assert_eq!(log.lines().await, Ok(vec![(0, 1), (0, 2)]));
    assert_eq!(log.moves().await, Ok((1001, 0)));
    assert!(pair.move_over(log.id(), WAIT_MAX).await);
    assert_eq!(log.node().await, Ok(1));
    assert_eq!(log.moves().await, Ok((2002, 0)));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_under_load_lose_and_reorder_nothing() {
    const SENDERS: u64 = 4;
    const MOVES: usize = 200;
    let pair = Pair::start(|builder| builder.register::<Log>());
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    for sender in 0..SENDERS {
        let log: Ref<Log> = pair.runtime(sender as usize % 2).client().actor("log");
        let stop = stop.clone();
        senders.push(tokio::spawn(async move {
            let mut line = 0;
            while !stop.load(Ordering::Relaxed) {
                match line % 4 {
                    0 => log.append(sender, line).tell().await.unwrap(),
                    1 => assert_eq!(log.append(sender, line).await, Ok(line)),
                    2 => log.append_slowly(sender, line).tell().await.unwrap(),
                    _ => assert_eq!(log.append_slowly(sender, line).await, Ok(line)),
                }
                line += 1;
            }
            // A call after the last tell: once it is answered, everything has run.
            log.append(sender, line).await.unwrap();
            line + 1
        }));
    }
    let log: Ref<Log> = pair.runtime(0).client().actor("log");
    within("the first line", async {
        while log.lines().await.unwrap().is_empty() {}
    })
    .await;
    let mut moved = 0;
    for _ in 0..MOVES {
        moved += usize::from(within("a move", pair.move_over(log.id(), WAIT_MAX)).await);
    }
    assert_eq!(moved, MOVES);
    stop.store(true, Ordering::Relaxed);
    let mut sent = Vec::new();
    for sender in senders {
        sent.push(within("a sender", sender).await.unwrap());
    }
    let lines = log.lines().await.unwrap();
    for sender in 0..SENDERS {
        let own: Vec<_> = lines
            .iter()
            .filter(|(from, _)| *from == sender)
            .map(|(_, line)| *line)
            .collect();
        let expected: Vec<_> = (0..sent[sender as usize]).collect();
        assert_eq!(own, expected, "the lines of sender {sender}");
    }
    pair.stop().await;
}

#[derive(Actor, Serialize, Deserialize, Default)]
struct Gated {
    done: u64,
}

static GATE: Gate = Gate::new();
static FOREVER: Gate = Gate::new();
static FAILING: Gate = Gate::new();

#[handlers]
impl Gated {
    async fn wait(&mut self) -> u64 {
        GATE.passed().await;
        self.done += 1;
        self.done
    }

    async fn fail(&mut self) {
        FAILING.passed().await;
        panic!("requested by the test");
    }

    async fn wait_forever(&mut self) {
        FOREVER.passed().await;
    }

    fn done(&self) -> u64 {
        self.done
    }
}

#[tokio::test]
async fn a_freeze_waits_for_the_turn_or_times_out() {
    let pair = Pair::start(|builder| builder.register::<Gated>());
    let gated: Ref<Gated> = pair.runtime(0).client().actor(1);
    assert_eq!(gated.done().await, Ok(0));
    let waiting = tokio::spawn({
        let gated = gated.clone();
        async move { gated.wait().await }
    });
    within("the handler", GATE.reached(1)).await;
    assert!(!pair.move_over(gated.id(), Duration::from_millis(5)).await);
    // The actor continues as before: its turn ends, and it accepts calls.
    let id = gated.id().clone();
    let mover = tokio::spawn({
        let pair = pair.clone();
        async move { pair.move_over(&id, WAIT_MAX).await }
    });
    tokio::task::yield_now().await;
    let queued = tokio::spawn({
        let gated = gated.clone();
        async move { gated.done().await }
    });
    GATE.open();
    assert_eq!(within("the reply", waiting).await.unwrap(), Ok(1));
    assert!(within("the move", mover).await.unwrap());
    assert_eq!(within("the queued call", queued).await.unwrap(), Ok(1));
    assert_eq!(pair.place(gated.id()).node, 1);
    pair.stop().await;
}

#[tokio::test]
async fn a_frozen_activation_can_be_resumed() {
    let pair = Pair::start(|builder| builder.register::<Gated>());
    let runtime = pair.runtime(0);
    let gated: Ref<Gated> = runtime.client().actor(1);
    assert_eq!(gated.done().await, Ok(0));
    let epoch = pair.place(gated.id()).epoch;
    let freeze = || async {
        let (sender, receiver) = tokio::sync::oneshot::channel::<Result<StateImage, FreezeError>>();
        let done = move |image| drop(sender.send(image));
        runtime.freeze(gated.id(), epoch, runtime.now() + WAIT_MAX, Box::new(done));
        receiver.await.unwrap()
    };
    assert!(freeze().await.is_ok());
    assert_eq!(freeze().await, Err(FreezeError::AlreadyFrozen));
    let queued = tokio::spawn({
        let gated = gated.clone();
        async move { gated.done().await }
    });
    tokio::task::yield_now().await;
    assert!(!queued.is_finished());
    assert!(runtime.resume(gated.id(), epoch));
    assert!(!runtime.resume(gated.id(), epoch));
    assert_eq!(within("the queued call", queued).await.unwrap(), Ok(0));
    assert_eq!(runtime.release(gated.id(), epoch).map(|messages| messages.len()), None);
    pair.stop().await;
}

#[tokio::test]
async fn discarding_an_activation_returns_its_messages() {
    let pair = Pair::start(|builder| builder.register::<Gated>());
    let runtime = pair.runtime(0);
    let gated: Ref<Gated> = runtime.client().actor(1);
    let waiting = tokio::spawn({
        let gated = gated.clone();
        async move { gated.wait_forever().await }
    });
    within("the handler", FOREVER.reached(1)).await;
    gated.done().try_tell().unwrap();
    gated.done().try_tell().unwrap();
    let epoch = pair.place(gated.id()).epoch;
    let messages = runtime.discard(gated.id(), epoch);
    assert_eq!(messages.len(), 2);
    let lost = Err(CallError::Unknown(Unknown::NodeLost));
    assert_eq!(within("the outcome", waiting).await.unwrap(), lost);
    assert_eq!(runtime.active(gated.id()), None);
    // The same actor can be activated again, and runs the returned messages.
    runtime.activate(gated.id(), epoch.next(), None, messages).unwrap();
    assert_eq!(gated.done().await, Ok(0));
    pair.stop().await;
}

#[tokio::test]
async fn a_fenced_node_starts_no_turn_and_sends_no_reply() {
    let pair = Pair::start(|builder| builder.register::<Gated>());
    let gated: Ref<Gated> = pair.runtime(0).client().actor(1);
    assert_eq!(gated.done().await, Ok(0));
    pair.runtime(0).fence(true);
    let mut waiting = tokio::spawn({
        let gated = gated.clone();
        async move { gated.done().await }
    });
    assert!(
        tokio::time::timeout(Duration::from_millis(20), &mut waiting)
            .await
            .is_err()
    );
    pair.runtime(0).fence(false);
    assert_eq!(within("the reply", waiting).await.unwrap(), Ok(0));
    pair.stop().await;
}

#[tokio::test]
async fn no_turn_starts_after_the_lease_expires() {
    let clock = Clock::start_skipping();
    let pair = Pair::start(|builder| builder.register::<Gated>().clock(clock.clone()));
    let runtime = pair.runtime(0);
    let gated: Ref<Gated> = runtime.client().actor(1);
    assert_eq!(gated.done().await, Ok(0));
    let turns = || runtime.stats().turns;
    let before = turns();
    let expiry = clock.now() + Duration::from_secs(3600);
    runtime.may_act_until(expiry);
    // As if the process had been suspended for that long.
    clock.skip_to(expiry);
    // One call that would run on this thread, and one message for the workers.
    let mut called = Box::pin(gated.done().deadline(Duration::from_secs(10_000)).into_future());
    let early = tokio::time::timeout(Duration::from_millis(20), &mut called).await;
    assert!(early.is_err(), "{early:?}");
    let other = runtime.client().actor::<Gated>(2);
    other.done().try_tell().expect("the mailbox has room");
    let early = tokio::time::timeout(Duration::from_millis(20), &mut called).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(turns(), before, "a turn started after the lease expired");

    runtime.may_act_until(clock.now() + Duration::from_secs(3600));
    assert_eq!(within("the reply", called).await, Ok(0));
    pair.stop().await;
}

#[tokio::test]
async fn messages_queued_for_a_lost_activation_are_rejected() {
    let pair = Pair::start(|builder| builder.register::<Gated>());
    let gated: Ref<Gated> = pair.runtime(0).client().actor(1);
    let call = |fails: bool| {
        let gated = gated.clone();
        tokio::spawn(async move {
            if fails {
                gated.fail().await
            } else {
                gated.done().await.map(drop)
            }
        })
    };
    let failing = call(true);
    within("the handler", FAILING.reached(1)).await;
    let waiting = call(false);
    tokio::task::yield_now().await;
    FAILING.open();
    assert_eq!(within("the panic", failing).await.unwrap(), Err(CallError::Panicked));
    // Resending could reorder it behind its sender's later messages.
    let refused = Err(CallError::NotDelivered(NotDelivered::NotHere));
    assert_eq!(within("the outcome", waiting).await.unwrap(), refused);
    assert_eq!(gated.done().await, Ok(0));
    pair.stop().await;
}
