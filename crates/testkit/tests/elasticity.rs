//! A policy on real processes: servers are added and removed with the load, and no call fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elastin::{Client, Embedded, PolicySource};
use elastin_testkit::{Burner, app, wait_for_some};
use tokio::task::JoinSet;

const POLICY: &str = "server.cpu.perc > 80 or server.cpu.perc < 40 => balance({Burner}, cpu);";

const BURNERS: u64 = 8;

/// A call takes some milliseconds of a core, so that a few callers fill a server's share.
const THOUSAND_ROUNDS: u32 = 500;

async fn burn(client: Client, burner: u64, stop: Arc<AtomicBool>) -> u64 {
    let burner = client.actor::<Burner>(burner);
    let mut calls = 0;
    while !stop.load(Ordering::Relaxed) {
        calls += 1;
        let burnt = burner
            .burn(THOUSAND_ROUNDS)
            .deadline(Duration::from_secs(30))
            .await
            .expect("a call is answered");
        assert_eq!(burnt, calls, "a call was lost or ran twice");
    }
    calls
}

/// Waits for a condition; on a timeout, shows the servers and the decisions.
async fn wait_until(label: &str, cluster: &Embedded, holds: impl Fn(&Embedded) -> bool) {
    wait_for_some(label, async || {
        if holds(cluster) {
            return Ok(());
        }
        let decisions = cluster.decisions();
        let decided: Vec<_> = decisions.iter().map(|decision| cluster.explain(decision)).collect();
        Err(format!("{:#?}\n{}", cluster.servers(), decided.join("\n")))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_added_and_removed_with_the_load() {
    let cluster = app()
        .embedded()
        .servers(1)
        .servers_max(3)
        .cpu_share(0.2)
        .period(Duration::from_secs(1))
        .policy(PolicySource::new("balance.epl", POLICY))
        .program(env!("CARGO_BIN_EXE_testkit-server"))
        .start()
        .await
        .expect("the cluster starts");
    let client = cluster.client().await.expect("a client connects");
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for burner in 0..BURNERS {
        load.spawn(burn(client.clone(), burner, Arc::clone(&stop)));
    }

    wait_until("actors on more than one server", &cluster, |cluster| {
        cluster.servers().iter().filter(|server| server.actors > 0).count() > 1
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    while let Some(burnt) = load.join_next().await {
        calls += burnt.expect("no call failed");
    }

    wait_until("one server to be left", &cluster, |cluster| {
        cluster.servers().len() == 1
    })
    .await;
    let mut burnt = 0;
    for burner in 0..BURNERS {
        burnt += client
            .actor::<Burner>(burner)
            .burnt()
            .await
            .expect("every actor answers");
    }
    assert_eq!(burnt, calls, "volatile state survives the removal of servers");
    cluster.shutdown().await;
}
