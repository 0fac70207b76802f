//! The pause of a moving actor, against a call with the same payload between the same processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use bench_table::{Goal, Row, Samples};
use bytes::Bytes;
use elastin::prelude::Ref;
use elastin::types::ActorId;
use elastin::{Embedded, ServerStatus};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bodies::{Mover, Prober, Taker};
use crate::ours;

const MOVES: usize = 1_000;
/// The number of callers that keep the moving actor busy.
const CALLERS: usize = 4;

/// A row for each percentile and size.
pub(crate) async fn rows() -> Result<Vec<Row>> {
    let cluster = ours::app().embedded().servers(2).without_policy().start().await?;
    let mut rows = Vec::new();
    for (key, bytes, size) in [(1, 1 << 10, "1 KB"), (2, 1 << 20, "1 MB")] {
        eprintln!("{MOVES} moves of {size}");
        let (pauses, calls) = measure(&cluster, key, bytes).await?;
        for percent in [50, 99] {
            let name = format!("pause of a move with {size}, p{percent}");
            let peer = format!("a call that carries {size}, p{percent}");
            let (ours, theirs) = (at(&pauses, percent), at(&calls, percent));
            rows.push(Row::new(name, "ms", &ours, peer, &theirs).goal(Goal::AtMost(4.0)));
        }
    }
    cluster.shutdown().await;
    Ok(rows)
}

const LARGE_BYTES: u32 = 100 << 20;
/// The number of round trips.
const LARGE_MOVES: usize = 10;
const PROBES: u32 = 500;

/// The latency of calls on a link while a large state moves over it, against the same calls on the idle link.
pub(crate) async fn interleaving() -> Result<Row> {
    let cluster = ours::app().embedded().servers(2).without_policy().start().await?;
    let client = cluster.client().await?;
    let names: Vec<String> = cluster.servers().into_iter().map(|server| server.name).collect();
    let (mover, prober, taker) = (
        client.actor::<Mover>(9),
        client.actor::<Prober>(9),
        client.actor::<Taker>(9),
    );
    mover.fill(LARGE_BYTES).await?;
    taker.take(Bytes::new()).await?;
    prober.probe(9, 1).await?;
    // An actor that is already there stays.
    for (actor, server) in [(mover.id(), 0), (prober.id(), 0), (taker.id(), 1)] {
        let _ = cluster.move_actor(actor, &names[server]).await;
    }
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for number in 0..LARGE_MOVES {
        eprintln!("a move of 100 MB: {} of {LARGE_MOVES}", number + 1);
        quiet.extend(prober.probe(9, PROBES).await?);
        let to = &names[(number + 1) % 2];
        let mut moving = std::pin::pin!(cluster.move_actor(mover.id(), to));
        loop {
            tokio::select! {
                moved = &mut moving => {
                    moved?;
                    break;
                }
                times = async { prober.probe(9, 20).await } => busy.extend(times?),
            }
        }
    }
    cluster.shutdown().await;
    let sorted = |times: Vec<u64>| {
        let mut times: Vec<f64> = times.into_iter().map(|time| time as f64 / 1e6).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (busy, quiet) = (sorted(busy), sorted(quiet));
    anyhow::ensure!(!busy.is_empty(), "no call was made while the state moved");
    let name = "a call while 100 MB of state move on its link, p99";
    Ok(Row::new(
        name,
        "ms",
        &at(&busy, 99),
        "the same on a quiet link, p99",
        &at(&quiet, 99),
    )
    .goal(Goal::AtMost(1.5)))
}

/// A percentile as a single sample.
pub(crate) fn at(times: &[f64], percent: usize) -> Samples {
    let mut samples = Samples::default();
    samples.add(times[(times.len() - 1) * percent / 100]);
    samples
}

/// The pauses and the latencies of calls in milliseconds, in ascending order.
async fn measure(cluster: &Embedded, key: u64, bytes: u32) -> Result<(Vec<f64>, Vec<f64>)> {
    let client = cluster.client().await?;
    let mover = client.actor::<Mover>(key);
    let id: ActorId = mover.id().clone();
    mover.fill(bytes).await?;
    let taker = client.actor::<Taker>(key);
    let body = Bytes::from(vec![7; bytes as usize]);
    taker.take(body.clone()).await?;
    let names: Vec<String> = cluster
        .servers()
        .iter()
        .map(|server: &ServerStatus| server.name.clone())
        .collect();
    // From here on every move changes the server: the actor starts on the last one.
    let _ = cluster.move_actor(&id, &names[names.len() - 1]).await;
    mover.touch().await?;

    let over = Arc::new(AtomicBool::new(false));
    let (paused, mut pauses) = mpsc::unbounded_channel();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(keep_busy(client.actor::<Mover>(key), Arc::clone(&over), paused.clone()));
    }
    let mut calls = Vec::with_capacity(MOVES);
    let mut noticed = Vec::with_capacity(MOVES);
    for number in 0..MOVES {
        let to = &names[number % names.len()];
        cluster.move_actor(&id, to).await?;
        noticed.push(pauses.recv().await.context("the callers have stopped")? as f64 / 1e6);
        calls.push(carry(&taker, body.clone()).await?);
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers.join_all().await {
        caller?;
    }
    noticed.sort_by(f64::total_cmp);
    calls.sort_by(f64::total_cmp);
    Ok((noticed, calls))
}

async fn keep_busy(mover: Ref<Mover>, over: Arc<AtomicBool>, paused: mpsc::UnboundedSender<u64>) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        if let Some(pause) = mover.touch().await? {
            paused.send(pause)?;
        }
    }
    Ok(())
}

async fn carry(taker: &Ref<Taker>, body: Bytes) -> Result<f64> {
    let start = Instant::now();
    taker.take(body).await?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
