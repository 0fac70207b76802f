//! The actors that move: they notice when a turn of theirs is missing, doubled or late.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use elastin::prelude::*;

/// The bytes that an actor carries about, and when and where it last ran.
#[derive(Serialize, Deserialize, Default)]
struct MessageContext {
    load: Bytes,
    process: u32,
    ran_at_ns: u64,
}

impl MessageContext {
    fn fill(&mut self, length: u32) {
        self.load = vec![7; length as usize].into();
        self.process = std::process::id();
        self.ran_at_ns = now_ns();
    }

    fn touch(&mut self) -> Option<u64> {
        let now = now_ns();
        let here = std::process::id();
        let moved = self.process != here;
        let pause = moved.then(|| now.saturating_sub(self.ran_at_ns));
        self.process = here;
        self.ran_at_ns = now;
        pause
    }
}

/// Carries bytes about and measures for how long it could not run while it moved.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Mover {
    carried: MessageContext,
}

#[handlers]
impl Mover {
    /// Gives it so many bytes to carry.
    async fn fill(&mut self, length: u32) {
        self.carried.fill(length);
    }

    /// Runs. If it has moved since it last ran, says how many nanoseconds lie between.
    async fn touch(&mut self) -> Option<u64> {
        self.carried.touch()
    }
}

/// The same, of a persistent type: where it moves to it is claimed in the store before it runs. It saves nothing by itself, so
/// that only claims are asked of the store.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(on_request))]
pub(crate) struct Keeper {
    carried: MessageContext,
}

#[handlers]
impl Keeper {
    /// Gives it so many bytes to carry.
    async fn fill(&mut self, length: u32) {
        self.carried.fill(length);
    }

    /// Runs. If it has moved since it last ran, says how many nanoseconds lie between.
    async fn touch(&mut self) -> Option<u64> {
        self.carried.touch()
    }
}

/// The time of the machine, which its processes share.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Takes bytes, as a move does, but as a call.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Taker {}

#[handlers]
impl Taker {
    /// Takes them; says how many.
    async fn take(&mut self, bytes: Bytes) -> u64 {
        bytes.len() as u64
    }
}

/// Calls another actor and measures how long it takes.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Prober {}

#[handlers]
impl Prober {
    /// Calls a taker so many times, one after another; the times in nanoseconds.
    async fn probe(&mut self, ctx: &Ctx, taker: u64, calls: u32) -> Result<Vec<u64>, CallError> {
        let taker = ctx.actor::<Taker>(taker);
        let mut times = Vec::with_capacity(calls as usize);
        for _ in 0..calls {
            let start = std::time::Instant::now();
            taker.take(Bytes::from_static(&[7; 64])).await?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }
}

/// Knows the last number of each caller.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Counter {
    last: BTreeMap<u32, u64>,
}

#[handlers]
impl Counter {
    /// Notes a caller's next number; gives the one before.
    async fn next(&mut self, caller: u32, number: u64) -> u64 {
        self.last.insert(caller, number).unwrap_or(0)
    }
}
