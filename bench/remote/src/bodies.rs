//! The actors that move: they detect lost, duplicated and late turns.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use elastin::prelude::*;

/// The payload of a moving actor, and when and where it last ran.
#[derive(Serialize, Deserialize, Default)]
struct Ballast {
    load: Bytes,
    process: u32,
    ran_at_ns: u64,
}

impl Ballast {
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

/// Carries a payload and measures for how long it could not run while it moved.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Mover {
    carried: Ballast,
}

#[handlers]
impl Mover {
    /// Sets the size of the payload.
    async fn fill(&mut self, length: u32) {
        self.carried.fill(length);
    }

    /// Runs a turn. If the actor has moved since its last turn, returns the nanoseconds in between.
    async fn touch(&mut self) -> Option<u64> {
        self.carried.touch()
    }
}

/// Like [`Mover`], of a persistent type: the target of a move claims it in the store before it runs. It saves nothing
/// by itself, so that the store sees only claims.
#[derive(Actor, Serialize, Deserialize, Default)]
#[actor(persist(on_request))]
pub(crate) struct Keeper {
    carried: Ballast,
}

#[handlers]
impl Keeper {
    /// Sets the size of the payload.
    async fn fill(&mut self, length: u32) {
        self.carried.fill(length);
    }

    /// Runs a turn. If the actor has moved since its last turn, returns the nanoseconds in between.
    async fn touch(&mut self) -> Option<u64> {
        self.carried.touch()
    }
}

/// The wall-clock time of the machine, which its processes share.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Receives bytes by a call, for comparison with a move.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Taker {}

#[handlers]
impl Taker {
    /// Returns the number of bytes received.
    async fn take(&mut self, bytes: Bytes) -> u64 {
        bytes.len() as u64
    }
}

/// Calls another actor and measures the latencies.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Prober {}

#[handlers]
impl Prober {
    /// Calls a taker sequentially and returns the latencies in nanoseconds.
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

/// Stores the last number of each caller.
#[derive(Actor, Serialize, Deserialize, Default)]
pub(crate) struct Counter {
    last: BTreeMap<u32, u64>,
}

#[handlers]
impl Counter {
    /// Stores a caller's next number and returns the previous one.
    async fn next(&mut self, caller: u32, number: u64) -> u64 {
        self.last.insert(caller, number).unwrap_or(0)
    }
}
