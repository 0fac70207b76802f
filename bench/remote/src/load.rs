//! Loads: sequential calls, or a fixed number of calls in flight.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::contestant::{BODY_BYTES, Remote};

/// The duration of a measurement with calls in flight, after a warm-up of the same length.
pub(crate) const TIME: Duration = Duration::from_millis(700);

/// A workload and its unit.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// This many sequential calls: the median latency in microseconds.
    OneAfterAnother(usize),
    /// This many callers, each of which calls again as soon as it has its reply: calls per second.
    InFlight(usize),
}

pub(crate) async fn run<R: Remote>(remote: &R, work: Work) -> Result<f64> {
    match work {
        Work::OneAfterAnother(calls) => one_after_another(remote.clone(), calls).await,
        Work::InFlight(callers) => in_flight(remote, callers).await,
    }
}

fn body() -> Vec<u8> {
    vec![7; BODY_BYTES]
}

async fn one_after_another(mut remote: impl Remote, calls: usize) -> Result<f64> {
    for _ in 0..calls / 10 {
        remote.call(body()).await?;
    }
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        let echoed = remote.call(body()).await?;
        times.push(start.elapsed());
        ensure!(echoed.len() == BODY_BYTES, "the echo differs from the request");
    }
    times.sort_unstable();
    Ok(times[calls / 2].as_secs_f64() * 1e6)
}

async fn in_flight(remote: &impl Remote, callers: usize) -> Result<f64> {
    let start = Instant::now() + TIME;
    let end = start + TIME;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let mut remote = remote.clone();
        tasks.spawn(async move {
            let mut done = 0_u64;
            loop {
                remote.call(body()).await?;
                let now = Instant::now();
                if now >= end {
                    return anyhow::Ok(done);
                }
                done += u64::from(now >= start);
            }
        });
    }
    let mut done = 0;
    for caller in tasks.join_all().await {
        done += caller?;
    }
    Ok(done as f64 / TIME.as_secs_f64())
}
