//! The time the store takes to claim a persistent actor that moves, apart from the rest of its pause.
//!
//! The servers log the latency of each request to the store; while the actor moves there are only claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use bench_table::Row;
use elastin::Cluster;
use elastin::prelude::Ref;
use elastin_testkit::{EtcdElastin, wait_for};
use tokio::sync::mpsc;

use crate::bodies::Keeper;
use crate::moves::at;
use crate::ours;

const MOVES: usize = 1_000;
const SERVERS: [&str; 2] = ["one", "two"];
/// The log filter that includes the requests to the store.
const STORE_LOG_FILTER: &str = "warn,elastin_stores::measured=trace";

/// A row for each percentile.
pub(crate) async fn rows() -> Result<Vec<Row>> {
    let mut elastin = EtcdElastin::start(ours::app(), std::env::current_exe()?, 1)?;
    elastin.log(STORE_LOG_FILTER);
    for server in SERVERS {
        elastin.add_server(server)?;
    }
    let cluster = elastin.connect().await?;
    wait_for("the servers to join", || {
        cluster.server_names().len() == SERVERS.len()
    })
    .await;
    eprintln!("{MOVES} moves of a persistent actor");
    let mut pauses = move_back_and_forth(&cluster).await?;
    pauses.sort_by(f64::total_cmp);
    cluster.leave().await;
    let mut claims: Vec<f64> = SERVERS
        .iter()
        .flat_map(|server| claims_in(&elastin.output_of(server)))
        .collect();
    claims.sort_by(f64::total_cmp);
    ensure!(claims.len() >= MOVES, "{MOVES} moves, and only {} claims", claims.len());
    let row = |percent| {
        let name = format!("claim of a persistent actor that moves, p{percent}");
        let peer = format!("the whole pause of its move, p{percent}");
        Row::new(name, "ms", &at(&claims, percent), peer, &at(&pauses, percent))
    };
    Ok([50, 99].map(row).into())
}

/// Moves an actor back and forth while it is called; returns its pauses in milliseconds.
async fn move_back_and_forth(cluster: &Cluster) -> Result<Vec<f64>> {
    let keeper = cluster.client().actor::<Keeper>(1);
    keeper.fill(1 << 10).await?;
    // From here on every move changes the server: the actor starts on the last one. It may be there already.
    let _ = cluster.move_actor(keeper.id(), SERVERS[1]).await;
    keeper.touch().await?;
    let over = Arc::new(AtomicBool::new(false));
    let (paused, mut pauses) = mpsc::unbounded_channel();
    let caller = tokio::spawn(keep_busy(keeper.clone(), Arc::clone(&over), paused));
    let mut noticed = Vec::with_capacity(MOVES);
    for number in 0..MOVES {
        cluster.move_actor(keeper.id(), SERVERS[number % SERVERS.len()]).await?;
        noticed.push(pauses.recv().await.context("the caller has stopped")? as f64 / 1e6);
    }
    over.store(true, Ordering::Relaxed);
    caller.await??;
    Ok(noticed)
}

async fn keep_busy(keeper: Ref<Keeper>, over: Arc<AtomicBool>, paused: mpsc::UnboundedSender<u64>) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        if let Some(pause) = keeper.touch().await? {
            paused.send(pause)?;
        }
    }
    Ok(())
}

/// The latency of each logged claim, in milliseconds.
fn claims_in(log: &str) -> Vec<f64> {
    let claims = log.lines().filter(|line| line.contains(r#"kind="claim""#));
    let micros = claims.filter_map(|line| {
        let (_, rest) = line.split_once("micros=")?;
        rest.split(' ').next()?.parse::<f64>().ok()
    });
    micros.map(|micros| micros / 1e3).collect()
}
