//! A log, and actors that send lines to it in all possible ways.

use std::thread;

use elastin_actor::{Actor, Ctx, Ref, handlers};
use elastin_runtime::Runtime;
use elastin_types::Caller;
use serde::{Deserialize, Serialize};

use super::within;

/// How many lines a sender sends before it waits for all of them. Few enough that the `try_tell` messages of all
/// senders never fill the mailbox.
const LINES_PER_CALL: u64 = 100;

#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Log {
    lines: Vec<u64>,
    last: Last,
}

/// How the last line was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
pub(crate) struct Last {
    pub(crate) thread: String,
    pub(crate) has_deadline: bool,
    pub(crate) caller: Option<Caller>,
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
        panic!("requested by the test");
    }

    fn contents(&self) -> (Vec<u64>, Last) {
        (self.lines.clone(), self.last.clone())
    }
}

pub(crate) fn this_thread() -> String {
    format!("{:?}", thread::current().id())
}

#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Sender {}

#[handlers]
impl Sender {
    /// Sends lines in all possible ways.
    async fn send(&mut self, log: Ref<Log>, first: u64, count: u64) {
        for line in first..first + count {
            match line % 6 {
                0 | 1 => log.append(line).tell().await.expect("the log is reachable"),
                2 => log.append(line).await.expect("the log is reachable"),
                3 => log.append_slowly(line).tell().await.expect("the log is reachable"),
                4 => log.append_slowly(line).await.expect("the log is reachable"),
                _ => log
                    .append(line)
                    .try_tell()
                    .unwrap_or_else(|_| panic!("the mailbox has room")),
            }
        }
    }
}

/// Lets several senders send lines concurrently, and checks that each sender's lines arrive completely and in order.
pub(crate) async fn check_order(runtime: &Runtime, log: &Ref<Log>, senders: u64, lines_each: u64) {
    let mut sending = Vec::new();
    for sender in 0..senders {
        let (log, actor) = (log.clone(), runtime.client().actor::<Sender>(sender));
        sending.push(tokio::spawn(async move {
            for first in (sender * lines_each..(sender + 1) * lines_each).step_by(LINES_PER_CALL as usize) {
                actor.send(log.clone(), first, LINES_PER_CALL).await.unwrap();
                log.contents().await.unwrap();
            }
        }));
    }
    for sender in sending {
        within("all lines sent", sender).await.unwrap();
    }
    let (lines, _) = log.contents().await.unwrap();
    for sender in 0..senders {
        let own = lines.iter().copied().filter(|line| line / lines_each == sender);
        let sent = sender * lines_each..(sender + 1) * lines_each;
        assert!(
            own.eq(sent),
            "the lines of sender {sender} are incomplete or out of order"
        );
    }
}
