//! One-way messages that run inline on the sender's thread, because the actor is idle and its turns are cheap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::log::{Log, Sender, check_order, this_thread};
use crate::common::{eventually, within};
use elastin::{Actor, Ref, handlers};
use elastin_runtime::{Runtime, Settings};
use elastin_types::{ActorId, Caller};
use serde::{Deserialize, Serialize};

/// Number of turns after which their cost is established: all of these are measured.
const KNOWN_AFTER: u64 = 32;

/// A runtime with one worker, in which turns up to this duration run inline.
fn runtime(inline_turn_max: Duration) -> Runtime {
    let settings = Settings {
        workers: 1,
        inline_turn_max,
        ..Settings::default()
    };
    let builder = Runtime::builder()
        .register::<Log>()
        .register::<Sender>()
        .register::<Teller>();
    builder.settings(settings).build().expect("the runtime starts")
}

/// A log whose turns are established as cheap, unless `inline_turn_max` is zero.
async fn known_log(runtime: &Runtime) -> Ref<Log> {
    let log: Ref<Log> = runtime.client().actor("log");
    for _ in 0..KNOWN_AFTER {
        log.contents().await.expect("the log is reachable");
    }
    log
}

/// Set by a message to another actor, which stops `tell_until_stopped`.
static STOPPED: AtomicBool = AtomicBool::new(false);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Teller {}

#[handlers]
impl Teller {
    /// Sends one line; returns whether it ran on the sender's thread.
    async fn tell_one(&mut self, log: Ref<Log>) -> bool {
        log.append(1).tell().await.expect("the log is reachable");
        let (lines, last) = log.contents().await.expect("the log is reachable");
        lines.last() == Some(&1) && last.thread == this_thread()
    }

    async fn tell_until_stopped(&mut self, log: Ref<Log>) {
        while !STOPPED.load(Ordering::SeqCst) {
            log.append(0).tell().await.expect("the log is reachable");
        }
    }

    fn stop(&mut self) {
        STOPPED.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn cheap_tells_run_inline_on_the_senders_thread() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let teller: Ref<Teller> = runtime.client().actor("teller");
    let sent = teller.tell_one(log.clone()).deadline(Duration::from_secs(30)).await;
    assert_eq!(sent, Ok(true));
    let (_, last) = log.contents().await.unwrap();
    assert!(!last.has_deadline, "a tell may outlast its sender's turn");
    assert_eq!(last.caller, Some(Caller::Actor(ActorId::clone(teller.id()))));
    // Outside of any turn as well.
    log.append(2).tell().await.unwrap();
    assert_eq!(log.contents().await.unwrap().1.thread, this_thread());
}

#[tokio::test]
async fn tells_not_established_as_cheap_are_enqueued() {
    for (runtime, known) in [(runtime(Duration::ZERO), true), (runtime(Duration::MAX), false)] {
        let log = match known {
            true => known_log(&runtime).await,
            false => runtime.client().actor("log"),
        };
        log.append(1).tell().await.unwrap();
        let (lines, last) = within("the line", log.contents().into_future()).await.unwrap();
        assert_eq!(lines, [1]);
        assert_ne!(last.thread, this_thread());
    }
}

#[tokio::test]
async fn a_panic_in_an_inline_tell_is_contained() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    log.append(1).tell().await.unwrap();
    log.fail()
        .tell()
        .await
        .expect("the sender of a tell does not see its outcome");
    assert_eq!(runtime.stats().panics, 1, "the tell must have run");
    let (lines, _) = within("the reply", log.contents().into_future()).await.unwrap();
    assert!(lines.is_empty(), "the log must have restarted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_tells_and_calls_stay_in_order() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    check_order(&runtime, &log, 4, 2000).await;
}

#[tokio::test]
async fn an_actor_that_only_sends_tells_starves_no_other() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let teller: Ref<Teller> = runtime.client().actor("teller");
    // Both as one-way messages: they compete for the only worker.
    teller.tell_until_stopped(log).try_tell().unwrap();
    runtime.client().actor::<Teller>("other").stop().try_tell().unwrap();
    eventually("the other's turn", || STOPPED.load(Ordering::SeqCst)).await;
}
