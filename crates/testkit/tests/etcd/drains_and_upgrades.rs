//! Servers that are drained and upgraded while actors are called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elastin::admin::AdminError;
use elastin::{Client, Cluster};
use elastin_cluster::WIRE_VERSIONS;
use elastin_testkit::{EtcdElastin, Journal, Ledger, wait_for};
use elastin_types::NodeId;
use tokio::task::JoinSet;

use super::start;

const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// The log filter of the servers, which shows the wire versions of their links.
const LOG_FILTER: &str = "warn,elastin_cluster::transport=debug";

async fn await_servers(cluster: &Cluster, names: &[&str]) {
    wait_for("the servers to join and leave", || {
        let mut there = cluster.server_names();
        there.sort();
        there == names
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_survive_moves_and_drains() {
    let (mut elastin, cluster) = start(LOG_FILTER, &["a", "b", "c"]).await;
    let client = cluster.client();
    for number in 1..=5 {
        for key in 0..30 {
            let journal = client.actor::<Journal>(key);
            assert_eq!(journal.append(1, number).deadline(CALL_DEADLINE).await, Ok(number));
            let ledger = client.actor::<Ledger>(key);
            assert_eq!(ledger.append(1, number).deadline(CALL_DEADLINE).await, Ok(number));
        }
    }

    let actor = client.actor::<Journal>(7).id().clone();
    let mut moved = 0;
    for server in ["a", "b", "c"] {
        match cluster.move_actor(&actor, server).await {
            Ok(()) => moved += 1,
            Err(error) => assert_eq!(error.to_string(), "the actor is already there"),
        }
    }
    assert!(moved >= 2, "it was on one of three servers");
    let nowhere = client.actor::<Journal>(1000).id().clone();
    assert_eq!(cluster.move_actor(&nowhere, "a").await, Err(AdminError::NotActive));
    let unknown = cluster.move_actor(&actor, "unknown").await;
    assert_eq!(unknown, Err(AdminError::NoSuchServer("unknown".into())));

    // The volatile state of the journals survives, wherever they were.
    cluster.drain("a").await.unwrap();
    elastin.end_server("b");
    await_servers(&cluster, &["c"]).await;
    for key in 0..30 {
        let journal = client.actor::<Journal>(key);
        assert_eq!(
            journal.append(1, 6).deadline(CALL_DEADLINE).await,
            Ok(6),
            "journal {key}"
        );
        let ledger = client.actor::<Ledger>(key);
        assert_eq!(ledger.append(1, 6).deadline(CALL_DEADLINE).await, Ok(6), "ledger {key}");
    }
    let status = cluster.status().await.unwrap();
    assert_eq!(
        status.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(),
        ["c"]
    );

    // No server can take over from the last one: it does not wait for long.
    let stopped = Instant::now();
    elastin.end_server("c");
    assert!(stopped.elapsed() < LAST_ENDS_WITHIN, "it took {:?}", stopped.elapsed());
    cluster.leave().await;
}

/// A server that is alone waits for a second for others.
const LAST_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Appends to all journals until it is stopped, and counts the rounds.
async fn append_until_stopped(client: Client, sender: u32, rounds: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        for key in 0..JOURNALS {
            // A one-way append first, so that a call which overtakes it is detected.
            let journal = client.actor::<Journal>(key);
            let sent = journal
                .append(sender, 2 * round - 1)
                .deadline(CALL_DEADLINE)
                .tell()
                .await;
            assert_eq!(sent, Ok(()), "sender {sender}, journal {key}, round {round}");
            let count = journal.append(sender, 2 * round).deadline(CALL_DEADLINE).await;
            assert_eq!(count, Ok(2 * round), "sender {sender}, journal {key}, round {round}");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls many journals, each so rarely that the caller's cached location is stale.
async fn append_rarely(client: Client, stop: Arc<AtomicBool>) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        for key in RARE_JOURNALS {
            let count = client
                .actor::<Journal>(key)
                .append(0, round)
                .deadline(CALL_DEADLINE)
                .await;
            assert_eq!(count, Ok(round), "rare journal {key}");
            tokio::time::sleep(RARELY).await;
        }
    }
}

const RARE_JOURNALS: std::ops::Range<u64> = 1000..1300;
/// The time between two calls of [`append_rarely`].
const RARELY: Duration = Duration::from_millis(5);
const JOURNALS: u64 = 20;
const SENDERS: u32 = 4;
/// The number of rounds of all senders between two upgrades.
const ROUNDS_BETWEEN: u64 = 10 * SENDERS as u64;

/// The newest version that servers speak before the upgrade, and after.
const WIRE_VERSION_OLD: u16 = WIRE_VERSIONS.1;
const WIRE_VERSION_NEW: u16 = WIRE_VERSION_OLD + 1;

/// Whether this server logged that it opened a link to that node in a version.
fn speaks(elastin: &EtcdElastin, server: &str, peer: NodeId, version: u16) -> bool {
    let link = format!("a link is open peer={peer} version={version}");
    elastin.output_of(server).lines().any(|line| line.ends_with(&link))
}

/// Checks whether a new server speaks the old version with old ones, and the new version with new ones.
async fn check_versions(elastin: &EtcdElastin, cluster: &Cluster, new_servers: &[&str]) {
    let newcomer = *new_servers.last().expect("one is new");
    for other in cluster.status().await.unwrap() {
        if other.name == newcomer {
            continue;
        }
        let (right, wrong) = match new_servers.contains(&&*other.name) {
            true => (WIRE_VERSION_NEW, WIRE_VERSION_OLD),
            false => (WIRE_VERSION_OLD, WIRE_VERSION_NEW),
        };
        let label = format!("{newcomer} to speak version {right} with {}", other.name);
        wait_for(&label, || speaks(elastin, newcomer, other.node, right)).await;
        assert!(
            !speaks(elastin, newcomer, other.node, wrong),
            "version {wrong} too, not only {label}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_under_load_loses_nothing_and_keeps_order() {
    let (mut elastin, cluster) = start(LOG_FILTER, &["a", "b", "c"]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let (client, rounds, stop) = (cluster.client().clone(), Arc::clone(&rounds), Arc::clone(&stop));
        senders.spawn(append_until_stopped(client, sender, rounds, stop));
    }
    let rare = tokio::spawn(append_rarely(cluster.client().clone(), Arc::clone(&stop)));
    let mut names = vec!["a", "b", "c"];
    let mut new_servers = Vec::new();
    let newest = WIRE_VERSION_NEW.to_string();
    for (old, new) in [("a", "d"), ("b", "e"), ("c", "f")] {
        tokio::task::block_in_place(|| elastin.end_server(old));
        // A later build, which speaks the new wire version with its like and the old one with the others.
        elastin.add_server_with(new, &["--wire-newest", &newest]).unwrap();
        names.retain(|name| *name != old);
        names.push(new);
        await_servers(&cluster, &names).await;
        let enough = rounds.load(Ordering::Relaxed) + ROUNDS_BETWEEN;
        wait_for("the senders to continue", || rounds.load(Ordering::Relaxed) >= enough).await;
        new_servers.push(new);
        check_versions(&elastin, &cluster, &new_servers).await;
    }
    stop.store(true, Ordering::Relaxed);
    rare.await.expect("no rare call failed");
    while let Some(sender) = senders.join_next().await {
        sender.expect("no call failed");
    }
    for key in 0..JOURNALS {
        let log = cluster
            .client()
            .actor::<Journal>(key)
            .log()
            .deadline(CALL_DEADLINE)
            .await;
        for (sender, numbers) in log.unwrap() {
            let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, expected, "journal {key}, sender {sender}");
        }
    }
    cluster.leave().await;
}
