//! Tells that whoever tells runs itself, because the actor is idle and its turns are brief.

extern crate elastin_actor as elastin;

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{eventually, within};
use elastin::{Actor, Ctx, Ref, handlers};
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
    let builder = Runtime::builder().register::<Log>().register::<Sender>();
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

#[derive(Actor, Serialize, Deserialize, Default)]
struct Log {
    lines: Vec<u64>,
    last: Last,
}

/// How the last line was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
struct Last {
    thread: String,
    has_deadline: bool,
    caller: Option<Caller>,
}

#[handlers]
impl Log {
    fn append(&mut self, ctx: &Ctx, line: u64) {
        self.lines.push(line);
        self.last = Last {
            thread: this_thread(),
            has_deadline: ctx.deadline().is_some(),
            caller: Some(ctx.caller()),
        };
    }

    async fn append_slowly(&mut self, line: u64) {
        tokio::task::yield_now().await;
        self.lines.push(line);
    }

    fn fail(&mut self) {
        panic!("as the test wants");
    }

    fn look(&self) -> (Vec<u64>, Last) {
        (self.lines.clone(), self.last.clone())
    }
}

fn this_thread() -> String {
    format!("{:?}", thread::current().id())
}

/// Raised by a sender that nobody told to stop in another way.
static STOPPED: AtomicBool = AtomicBool::new(false);

#[derive(Actor, Serialize, Deserialize, Default)]
struct Sender {}

#[handlers]
impl Sender {
    /// Sends lines in every way there is.
    async fn send(&mut self, log: Ref<Log>, first: u64, count: u64) {
        for line in first..first + count {
            match line % 5 {
                0 | 1 => log.append(line).tell().await.expect("the log is there"),
                2 => log.append(line).await.expect("the log is there"),
                3 => log.append_slowly(line).tell().await.expect("the log is there"),
                _ => log.append(line).try_tell().unwrap_or_else(|_| panic!("there is room")),
            }
        }
    }

    /// Tells one line; says whether it has been run by the thread that told it.
    async fn send_one(&mut self, log: Ref<Log>) -> bool {
        log.append(1).tell().await.expect("the log is there");
        let (lines, last) = log.look().await.expect("the log is there");
        lines.last() == Some(&1) && last.thread == this_thread()
    }

    async fn send_until_stopped(&mut self, log: Ref<Log>) {
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
    let sender: Ref<Sender> = runtime.client().actor("sender");
    let sent = sender.send_one(log.clone()).deadline(Duration::from_secs(30)).await;
    assert_eq!(sent, Ok(true));
    let (_, last) = log.look().await.unwrap();
    assert!(
        !last.has_deadline,
        "nobody waits for a tell, so it may outlast its sender's turn"
    );
    assert_eq!(last.caller, Some(Caller::Actor(ActorId::clone(sender.id()))));
    // Outside any turn as well.
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
    const SENDERS: u64 = 4;
    const EACH: u64 = 2000;
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let mut senders = Vec::new();
    for sender in 0..SENDERS {
        let (log, actor) = (log.clone(), runtime.client().actor::<Sender>(sender));
        // In pieces, so that the mailbox never fills up with what does not wait for room.
        senders.push(tokio::spawn(async move {
            for piece in 0..EACH / 100 {
                actor.send(log.clone(), sender * EACH + piece * 100, 100).await.unwrap();
                log.look().await.unwrap();
            }
        }));
    }
    for sender in senders {
        within("all lines sent", sender).await.unwrap();
    }
    let (lines, _) = log.look().await.unwrap();
    assert_eq!(lines.len() as u64, SENDERS * EACH);
    for sender in 0..SENDERS {
        let own: Vec<_> = lines.iter().copied().filter(|line| line / EACH == sender).collect();
        assert!(own.is_sorted(), "the lines of sender {sender} are out of order");
    }
}

#[tokio::test]
async fn who_does_nothing_but_tell_lets_others_run() {
    let runtime = runtime(Duration::MAX);
    let log = known_log(&runtime).await;
    let sender: Ref<Sender> = runtime.client().actor("sender");
    // Both by tell: they have the one worker between them.
    sender.send_until_stopped(log).try_tell().unwrap();
    runtime.client().actor::<Sender>("other").stop().try_tell().unwrap();
    eventually("the other's turn", || STOPPED.load(Ordering::SeqCst)).await;
}
