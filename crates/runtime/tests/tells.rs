//! Tells that whoever tells runs itself, because the actor is idle and its turns are brief.

extern crate elastin_actor as elastin;

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::log::{Log, Sender, check_order, this_thread};
use common::{eventually, within};
use elastin::{Actor, Ref, handlers};
use elastin_runtime::{Runtime, Settings};
use elastin_types::{ActorId, Caller};
use serde::{Deserialize, Serialize};

/// After how many turns an actor's turns are known to be brief: all of these are measured.
const KNOWN_AFTER: u64 = 32;

/// A runtime with one worker, in which turns are brief that take less than this.
fn runtime(brief_max: Duration) -> Runtime {
    let settings = Settings {
        workers: 1,
        brief_max,
        ..Settings::default()
    };
    let builder = Runtime::builder()
        .register::<Log>()
        .register::<Sender>()
        .register::<Teller>();
    builder.settings(settings).build().expect("the runtime starts")
}

/// A log whose turns are known to be brief, if `brief_max` says so.
async fn known_log(runtime: &Runtime) -> Ref<Log> {
    let log: Ref<Log> = runtime.client().actor("log");
    for _ in 0..KNOWN_AFTER {
        log.look().await.expect("the log is there");
    }
    log
}

/// Raised by a teller that nobody told to stop in another way.
static STOPPED: AtomicBool = AtomicBool::new(false);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Teller {}

#[handlers]
impl Teller {
    /// Tells one line; says whether it has been run by the thread that told it.
    async fn tell_one(&mut self, log: Ref<Log>) -> bool {
        log.append(1).tell().await.expect("the log is there");
        let (lines, last) = log.look().await.expect("the log is there");
        lines.last() == Some(&1) && last.thread == this_thread()
    }

    async fn tell_until_stopped(&mut self, log: Ref<Log>) {
        while !STOPPED.load(Ordering::SeqCst) {
            log.append(0).tell().await.expect("the log is there");
        }
    }

    fn stop(&mut self) {
        STOPPED.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn who_tells_runs_what_is_brief_itself() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let teller: Ref<Teller> = runtime.client().actor("teller");
    let sent = teller.tell_one(log.clone()).deadline(Duration::from_secs(30)).await;
    assert_eq!(sent, Ok(true));
    let (_, last) = log.look().await.unwrap();
    assert!(
        !last.has_deadline,
        "nobody waits for a tell, so it may outlast its sender's turn"
    );
    assert_eq!(last.caller, Some(Caller::Actor(ActorId::clone(teller.id()))));
    // Remote any turn as well.
    log.append(2).tell().await.unwrap();
    assert_eq!(log.look().await.unwrap().1.thread, this_thread());
}

#[tokio::test]
async fn what_is_not_brief_or_not_known_to_be_takes_the_mailbox() {
    for (runtime, known) in [(runtime(Duration::ZERO), true), (runtime(Duration::MAX), false)] {
        let log = match known {
            true => known_log(&runtime).await,
            false => runtime.client().actor("log"),
        };
        log.append(1).tell().await.unwrap();
        let (lines, last) = within("the line", log.look().into_future()).await.unwrap();
        assert_eq!(lines, [1]);
        assert_ne!(last.thread, this_thread());
    }
}

#[tokio::test]
async fn a_panic_in_what_is_told_is_contained() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    log.append(1).tell().await.unwrap();
    log.fail()
        .tell()
        .await
        .expect("what becomes of a tell does not concern who told it");
    assert_eq!(runtime.stats().panics, 1, "it has run");
    let (lines, _) = within("the reply", log.look().into_future()).await.unwrap();
    assert!(lines.is_empty(), "the log has started again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tells_in_all_ways_stay_in_order() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    check_order(&runtime, &log, 4, 2000).await;
}

#[tokio::test]
async fn who_does_nothing_but_tell_lets_others_run() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let teller: Ref<Teller> = runtime.client().actor("teller");
    // Both by tell: they have the one worker between them.
    teller.tell_until_stopped(log).try_tell().unwrap();
    runtime.client().actor::<Teller>("other").stop().try_tell().unwrap();
    eventually("the other's turn", || STOPPED.load(Ordering::SeqCst)).await;
}
