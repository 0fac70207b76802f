//! The cost of profiling and of snapshots, and the speed of persistent actors.
//!
//! `cargo xtask bench profile` prints the table and writes `target/bench/profile.json`. `profile chat USERS MESSAGES
//! on|off` runs only the chat room, for callgrind.

mod chat;
mod empty;
mod snapshot_cost;
mod instructions;
mod memory;
mod persist;

use anyhow::{Context, Result, bail};
use bench_table::{Goal, Row, Samples, Table};
use elastin_runtime::{Builder, Runtime, Settings};

/// The number of measurements of each subject, alternating with its counterpart.
const ROUNDS: usize = 7;

/// A runtime with this many threads, with profiling on or off.
pub(crate) fn builder(workers: usize, profiling: bool) -> Builder {
    Runtime::builder().settings(Settings {
        workers,
        profiling,
        ..Settings::default()
    })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["chat", users, messages, profiling] => chat::run(users.parse()?, messages.parse()?, profiling == "on"),
        [memory::CHILD, profiling] => memory::child(profiling == "on"),
        [] => measure(),
        _ => bail!("unknown arguments: {words:?}"),
    }
}

fn measure() -> Result<()> {
    let mut rows = Vec::new();
    for users in chat::USERS {
        let (on, off) = instructions::of_chat(users)?;
        rows.push(
            Row::new(
                format!("chat room, {users} users, profiling on"),
                "instructions/msg",
                &on,
                "off",
                &off,
            )
            .goal(Goal::AtMost(1.01)),
        );
    }
    let (on, off) = empty::measure(ROUNDS)?;
    let mut added = Samples::default();
    added.add((on.median() - off.median()).max(0.01));
    let mut allowed = Samples::default();
    allowed.add(empty::ADDED_NS_MAX);
    rows.push(Row::new("empty handler, profiling on", "ns/msg", &on, "off", &off));
    rows.push(
        Row::new(
            "empty handler, added by profiling",
            "ns/msg",
            &added,
            "allowed",
            &allowed,
        )
        .goal(Goal::AtMost(1.0)),
    );
    let (many, few) = snapshot_cost::measure(ROUNDS)?;
    rows.push(
        Row::new(
            "snapshot, 1,000,000 idle + 10,000 busy",
            "ms",
            &many,
            "10,000 + 10,000",
            &few,
        )
        .goal(Goal::AtMost(1.5)),
    );
    let (turns, commits) = persist::measure(ROUNDS.min(5))?;
    let name = format!("persisted turns, {} actors at once", persist::ACTORS);
    rows.push(Row::new(name, "turns/s", &turns, "one commit per turn", &commits).goal(Goal::AtLeast(10.0)));
    let (on, off) = (memory::measure(true)?, memory::measure(false)?);
    rows.push(Row::new("idle actor, profiling on", "bytes", &on, "off", &off).goal(Goal::AtMost(1.05)));
    Table { rows }.finish("profile").context("see the table")
}
