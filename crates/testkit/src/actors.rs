//! Actors that record their messages in order.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use elastin::prelude::*;

/// For each sender the numbers that came from it, in the order in which they came.
pub type Log = BTreeMap<u32, Vec<u64>>;

/// Keeps its log in memory only: a planned move carries it along, a crash loses it.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Journal {
    log: Log,
}

#[handlers]
impl Journal {
    /// Appends a number of a sender; returns how many it has of that sender.
    async fn append(&mut self, sender: u32, number: u64) -> u64 {
        append(&mut self.log, sender, number)
    }

    /// Everything so far.
    async fn log(&self) -> Log {
        self.log.clone()
    }
}

/// Info line that a server logs when [a slow append](Ledger) begins.
pub const SLOW_TURN_BEGAN: &str = "a slow turn has begun";
/// Info line at the end of that turn.
pub const SLOW_TURN_ENDS: &str = "a slow turn ends";

/// Keeps its log in the store: acknowledged entries survive a crash.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist)]
pub struct Ledger {
    log: Log,
}

#[handlers]
impl Ledger {
    /// Appends a number of a sender; returns how many it has of that sender.
    async fn append(&mut self, sender: u32, number: u64) -> u64 {
        append(&mut self.log, sender, number)
    }

    /// The same in a turn that takes long. Its server logs when it begins and ends.
    async fn append_slowly(&mut self, sender: u32, number: u64, time: Duration) -> u64 {
        tracing::info!("{SLOW_TURN_BEGAN}");
        tokio::time::sleep(time).await;
        tracing::info!("{SLOW_TURN_ENDS}");
        append(&mut self.log, sender, number)
    }

    /// Everything so far.
    async fn log(&self) -> Log {
        self.log.clone()
    }
}

fn append(log: &mut Log, sender: u32, number: u64) -> u64 {
    let numbers = log.entry(sender).or_default();
    numbers.push(number);
    numbers.len() as u64
}

/// An actor that tells journals, so that the sender of messages may move too.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Feeder {
    sent: BTreeMap<u64, u64>,
}

#[handlers]
impl Feeder {
    /// Tells a journal the next few numbers, as `sender`, without waiting for any; returns the last one.
    async fn feed(&mut self, ctx: &Ctx, sender: u32, journal: u64, count: u32) -> Result<u64, CallError> {
        let next = self.sent.entry(journal).or_default();
        for _ in 0..count {
            *next += 1;
            ctx.actor::<Journal>(journal).append(sender, *next).tell().await?;
        }
        Ok(*next)
    }
}

/// Uses the processor, and counts how often.
#[derive(Actor, Serialize, Deserialize, Default)]
pub struct Burner {
    burnt: u64,
}

#[handlers]
impl Burner {
    /// Works for about this many thousand rounds of a hash; returns how often it has.
    async fn burn(&mut self, thousand_rounds: u32) -> u64 {
        let hash = (0..u64::from(thousand_rounds) * 1000).fold(1, |hash: u64, round| {
            (black_box(hash) ^ round).wrapping_mul(0x0000_0100_0000_01b3)
        });
        black_box(hash);
        self.burnt += 1;
        self.burnt
    }

    /// The number of times that it has worked.
    async fn burnt(&self) -> u64 {
        self.burnt
    }
}
