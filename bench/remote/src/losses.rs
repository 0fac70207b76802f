//! A server that is emptied while its actors are called, and one that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_table::{Goal, Row, Samples};
use elastin::{Client, Embedded};
use tokio::task::JoinSet;

use crate::bodies::Counter;
use crate::ours;

const DRAINED: u64 = 100_000;
const LOST: u64 = 10_000;
const CALLERS: u32 = 8;
/// So many actors are activated at once.
const ACTIVATED_AT_ONCE: u64 = 256;
/// Beyond this a drain has failed.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(300);
/// The lease of a server of an embedded cluster and one second more.
const RECOVERY: Duration = Duration::from_secs(4);

/// A server with many actors is emptied while they are called.
pub(crate) async fn drain() -> Result<Row> {
    let cluster = ours::app()
        .embedded()
        .servers(1)
        .servers_max(2)
        .without_policy()
        .start()
        .await?;
    let client = cluster.client().await?;
    eprintln!("{DRAINED} actors are activated");
    activate(&client, DRAINED).await?;
    let from = name_of_the_only_server(&cluster)?;
    cluster.add_server().await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 1..=CALLERS {
        callers.spawn(call_in_order(client.clone(), caller, Arc::clone(&over)));
    }
    eprintln!("and moved away");
    let start = Instant::now();
    cluster.drain(&from);
    let gone = async {
        while cluster.servers().iter().any(|server| server.name == from) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let drained = tokio::time::timeout(DRAIN_TIME_MAX, gone).await;
    ensure!(drained.is_ok(), "the server was not empty after {DRAIN_TIME_MAX:?}");
    let seconds = start.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers.join_all().await {
        calls += caller.context("a call failed, or ran out of order, during the drain")?;
    }
    cluster.shutdown().await;
    let name = format!("actors drained, {calls} calls, none failed or reordered");
    let (mut ours, mut none) = (Samples::default(), Samples::default());
    ours.add(DRAINED as f64 / seconds);
    none.add(1.0);
    Ok(Row::new(name, "/s", &ours, "one a second", &none))
}

/// Calls all actors in turn, and checks that each has seen this caller's last number before the next.
async fn call_in_order(client: Client, caller: u32, over: Arc<AtomicBool>) -> Result<u64> {
    let mut calls = 0;
    // Each caller has a set of its own that it comes back to soon, so that most are met before, during and after.
    let mine: Vec<u64> = (0..DRAINED).skip(caller as usize).step_by(997).collect();
    for number in 1.. {
        for key in &mine {
            let before = client.actor::<Counter>(*key).next(caller, number).await?;
            ensure!(before == number - 1, "actor {key} had {before} before {number}");
            calls += 1;
            if over.load(Ordering::Relaxed) {
                return Ok(calls);
            }
        }
    }
    Ok(calls)
}

/// A server with some actors is killed; how long it takes until one of them answers again.
pub(crate) async fn crash() -> Result<Row> {
    let cluster = ours::app()
        .embedded()
        .servers(1)
        .servers_max(2)
        .without_policy()
        .start()
        .await?;
    let client = cluster.client().await?;
    activate(&client, LOST).await?;
    let victim = name_of_the_only_server(&cluster)?;
    cluster.add_server().await?;
    eprintln!("the server of {LOST} actors is killed");
    let start = Instant::now();
    ensure!(cluster.kill(&victim).await, "there is no server to kill");
    loop {
        if client.actor::<Counter>(1).next(1, 1).await.is_ok() {
            break;
        }
        ensure!(start.elapsed() < DRAIN_TIME_MAX, "the actors did not come back");
    }
    let (mut ours, mut limit) = (Samples::default(), Samples::default());
    ours.add(start.elapsed().as_secs_f64());
    limit.add(RECOVERY.as_secs_f64());
    cluster.shutdown().await;
    let name = format!("first good call after a crash with {LOST} actors");
    Ok(Row::new(name, "s", &ours, "lease time and 1 s", &limit).goal(Goal::AtMost(1.0)))
}

fn name_of_the_only_server(cluster: &Embedded) -> Result<String> {
    let servers = cluster.servers();
    Ok(servers.first().context("a server runs")?.name.clone())
}

async fn activate(client: &Client, count: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for part in 0..ACTIVATED_AT_ONCE {
        let client = client.clone();
        tasks.spawn(async move {
            for key in (part..count).step_by(ACTIVATED_AT_ONCE as usize) {
                client.actor::<Counter>(key).next(0, 1).await?;
            }
            anyhow::Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}
