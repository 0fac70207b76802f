//! A server that is drained while its actors are called, and one that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_table::{Goal, Row, Samples};
use elastin::{Client, Embedded};
use elastin_testkit::{EtcdElastin, LEASE_SECONDS, wait_for};
use tokio::task::JoinSet;

use crate::bodies::Counter;
use crate::ours;

const DRAINED: u64 = 100_000;
const LOST: u64 = 10_000;
/// The number of tasks that call the actors, each with its own share.
const CALLERS: u32 = 64;
/// The number of concurrent activations.
const ACTIVATED_AT_ONCE: u64 = 256;
/// The timeout of a drain.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(300);
/// The lease of a server of an embedded cluster, plus one second.
const RECOVERY: Duration = Duration::from_secs(4);

/// Drains a server with many actors while they are called.
pub(crate) async fn drain() -> Result<Row> {
    let cluster = ours::app()
        .embedded()
        .servers(1)
        .servers_max(2)
        .without_policy()
        .start()
        .await?;
    let client = cluster.client().await?;
    eprintln!("activating {DRAINED} actors");
    activate(&client, DRAINED).await?;
    let from = name_of_the_only_server(&cluster)?;
    cluster.add_server().await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 1..=CALLERS {
        callers.spawn(call_in_order(client.clone(), caller, Arc::clone(&over)));
    }
    eprintln!("draining their server");
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
    let name = format!("actors drained, each called, {calls} calls, none failed or reordered");
    let (mut ours, mut none) = (Samples::default(), Samples::default());
    ours.add(DRAINED as f64 / seconds);
    none.add(1.0);
    Ok(Row::new(name, "/s", &ours, "one a second", &none))
}

/// Tells and calls its share of the actors in turn, each at least once since the drain began. The call follows the tell
/// immediately and must observe it, and the tell this caller's last call.
async fn call_in_order(client: Client, caller: u32, over: Arc<AtomicBool>) -> Result<u64> {
    let mut calls = 0;
    let mine = (u64::from(caller - 1)..DRAINED).step_by(CALLERS as usize);
    for round in 0.. {
        for key in mine.clone() {
            let counter = client.actor::<Counter>(key);
            let (tell_number, call_number) = (2 * round + 1, 2 * round + 2);
            counter.next(caller, tell_number).tell().await?;
            let before = counter.next(caller, call_number).await?;
            ensure!(before == tell_number, "actor {key} had {before} before {call_number}");
            calls += 2;
            if round > 0 && over.load(Ordering::Relaxed) {
                return Ok(calls);
            }
        }
    }
    Ok(calls)
}

/// Kills a server, which its supervisor notices immediately; measures the time until one of its actors answers again.
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
    eprintln!("killing the server of {LOST} actors");
    let start = Instant::now();
    ensure!(cluster.kill(&victim).await, "there is no server to kill");
    let taken = back_after(&client, start).await?;
    cluster.shutdown().await;
    Ok(crash_row("", taken, RECOVERY))
}

/// Like [`crash`], over etcd: the crash is detected only when the server's lease expires.
pub(crate) async fn crash_over_etcd() -> Result<Row> {
    let mut elastin = EtcdElastin::start(ours::app(), std::env::current_exe()?, 1)?;
    elastin.add_server("victim")?;
    let cluster = elastin.connect().await?;
    let client = cluster.client();
    activate(client, LOST).await?;
    elastin.add_server("other")?;
    wait_for("the other server to join", || cluster.server_names().len() == 2).await;
    eprintln!("killing the server of {LOST} actors, over etcd");
    let start = Instant::now();
    elastin.kill_server("victim");
    let taken = back_after(client, start).await?;
    cluster.leave().await;
    let limit = Duration::from_secs(u64::from(LEASE_SECONDS) + 1);
    Ok(crash_row(", over etcd", taken, limit))
}

/// The time from the crash until a lost actor answers.
async fn back_after(client: &Client, start: Instant) -> Result<f64> {
    while client.actor::<Counter>(1).next(1, 1).await.is_err() {
        ensure!(start.elapsed() < DRAIN_TIME_MAX, "the actors did not recover");
    }
    Ok(start.elapsed().as_secs_f64())
}

fn crash_row(over: &str, seconds: f64, allowed: Duration) -> Row {
    let (mut ours, mut limit) = (Samples::default(), Samples::default());
    ours.add(seconds);
    limit.add(allowed.as_secs_f64());
    let name = format!("first good call after a crash with {LOST} actors{over}");
    Row::new(name, "s", &ours, "lease time and 1 s", &limit).goal(Goal::AtMost(1.0))
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
