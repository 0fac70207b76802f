//! Faults on real processes over etcd and PostgreSQL, under load. Callers keep a history; what the ledgers hold in the end
//! must agree with it, and does not if the fences are switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elastin::{Client, Cluster};
use elastin_backends::Network;
use elastin_testkit::{Dice, EtcdElastin, History, Ledger, Log, app, wait_for};
use tokio::task::JoinSet;

const LEDGERS: u64 = 8;
const SENDERS: u32 = 4;
/// Shorter than the faults last, so that callers go on meanwhile.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// How long it may take until everything is served again after a fault.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(40);
/// Longer than a lease and the hold after it.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(7);

async fn start(etcd_members: usize, more: &[&str]) -> (EtcdElastin, Cluster) {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start(app(), program, etcd_members).expect("etcd and PostgreSQL start");
    for server in ["a", "b", "c"] {
        elastin.add_server_with(server, more).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 3).await;
    (elastin, cluster)
}

async fn await_servers(cluster: &Cluster, count: usize) {
    wait_for("the servers to be there", || cluster.server_names().len() == count).await;
}

/// Appends numbers to ledgers, one call after the other, until it is told to stop.
async fn append(client: Client, sender: u32, stop: Arc<AtomicBool>) -> History {
    let mut dice = Dice::new(u64::from(sender));
    let mut history = History::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let ledger = dice.below(LEDGERS as usize) as u64;
        number += 1;
        let outcome = client
            .actor::<Ledger>(ledger)
            .append(sender, number)
            .deadline(CALL_DEADLINE)
            .await;
        if outcome.is_err() {
            // Like any caller who does not want to add to the trouble.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        history.appended(ledger, sender, number, outcome);
    }
    history
}

/// Reads ledgers, one after the other, until it is told to stop.
async fn read(client: Client, stop: Arc<AtomicBool>) -> History {
    let mut history = History::default();
    while !stop.load(Ordering::Relaxed) {
        for ledger in 0..LEDGERS {
            match client.actor::<Ledger>(ledger).log().deadline(CALL_DEADLINE).await {
                Ok(log) => history.read(ledger, log),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
    history
}

/// Callers of a cluster.
struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<History>,
}

impl Load {
    fn start(cluster: &Cluster) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for sender in 0..SENDERS {
            callers.spawn(append(cluster.client().clone(), sender, Arc::clone(&stop)));
        }
        callers.spawn(read(cluster.client().clone(), Arc::clone(&stop)));
        Load { stop, callers }
    }

    /// Ends the load: what the callers know.
    async fn end(mut self, what: &str) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        while let Some(caller) = self.callers.join_next().await {
            history.merge(caller.expect("no caller met an outcome that can't be"));
        }
        let counts = history.counts();
        eprintln!("{what}: {counts:?}");
        assert!(counts.acknowledged > 100, "the load was real: {counts:?}");
        history
    }
}

/// Everything in the ledgers that can't be, given what callers know.
async fn violations(history: &History, cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for ledger in 0..LEDGERS {
        found.extend(history.violations(ledger, &log_of(cluster, ledger).await));
    }
    found
}

/// A ledger's numbers when everything is over. What was in doubt has been decided by then.
async fn log_of(cluster: &Cluster, ledger: u64) -> Log {
    let began = Instant::now();
    loop {
        let actor = cluster.client().actor::<Ledger>(ledger);
        match actor.log().deadline(CALL_DEADLINE).await {
            Ok(log) => return log,
            Err(error) => assert!(
                began.elapsed() < RECOVERY_TIME_MAX,
                "ledger {ledger} can't be read: {error}"
            ),
        }
    }
}

/// Waits until every ledger is served again.
async fn await_service(cluster: &Cluster) {
    for ledger in 0..LEDGERS {
        log_of(cluster, ledger).await;
    }
}

/// Lets the load run for a while: what a fault meets is up to chance, so it is given some.
async fn go_on(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn end_and_check(what: &str, load: Load, cluster: Cluster) {
    let history = load.end(what).await;
    let found = violations(&history, &cluster).await;
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_an_etcd_member_are_killed() {
    let (mut elastin, cluster) = start(3, &[]).await;
    let load = Load::start(&cluster);
    for (round, (old, new)) in [("a", "d"), ("b", "e"), ("c", "f")].into_iter().enumerate() {
        go_on(Duration::from_millis(700)).await;
        tokio::task::block_in_place(|| {
            elastin.kill_server(old);
            elastin.etcd.kill(round);
        });
        elastin.add_server(new).unwrap();
        await_servers(&cluster, 3).await;
        await_service(&cluster).await;
        tokio::task::block_in_place(|| elastin.etcd.restart(round).unwrap());
    }
    end_and_check("killed servers and etcd members", load, cluster).await;
}

/// Stops a server for longer than its lease, under load, and lets it go on when the load is over; then kills the others, so
/// that what the ledgers hold comes from the store. Everything that can't be, given what callers know.
async fn stop_a_server(what: &str, more: &[&str]) -> Vec<String> {
    let (mut elastin, cluster) = start(1, more).await;
    let load = Load::start(&cluster);
    go_on(Duration::from_secs(1)).await;
    // In the middle of calls, which it finds when it wakes.
    elastin.server("b").pause();
    go_on(LONGER_THAN_A_LEASE).await;
    await_service(&cluster).await;
    let history = load.end(what).await;
    elastin.server("b").go_on();
    go_on(Duration::from_secs(2)).await;
    for (old, new) in [("a", "d"), ("b", "e"), ("c", "f")] {
        elastin.kill_server(old);
        elastin.add_server(new).unwrap();
    }
    wait_for("the new servers", || {
        ["d", "e", "f"]
            .iter()
            .all(|new| cluster.server_names().contains(&(*new).to_owned()))
    })
    .await;
    violations(&history, &cluster).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_stopped_for_longer_than_its_lease() {
    let found = stop_a_server("a stopped server", &[]).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fences_a_stopped_server_does_what_the_checker_finds() {
    let found = stop_a_server("a stopped server without fences", &["--unfenced"]).await;
    assert!(
        !found.is_empty(),
        "the checker finds nothing although nothing is fenced"
    );
    eprintln!("found without fences: {} times, first: {}", found.len(), found[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_restarted_and_etcd_loses_its_quorum() {
    let (mut elastin, cluster) = start(3, &[]).await;
    let load = Load::start(&cluster);
    for _ in 0..2 {
        go_on(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| elastin.postgres.restart().unwrap());
        await_service(&cluster).await;
    }
    tokio::task::block_in_place(|| {
        elastin.etcd.kill(0);
        elastin.etcd.kill(1);
    });
    go_on(LONGER_THAN_A_LEASE).await;
    tokio::task::block_in_place(|| {
        elastin.etcd.restart(0).unwrap();
        elastin.etcd.restart(1).unwrap();
    });
    await_service(&cluster).await;
    assert_eq!(
        cluster.server_names().len(),
        3,
        "nobody was taken for dead while nobody could tell"
    );
    end_and_check("restarts of PostgreSQL and no quorum", load, cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_network_between_servers_is_cut() {
    let mut network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            eprintln!("SKIPPED: the network is not cut, because this user may not make one: {error}");
            return;
        }
    };
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start_at(network.hub(), app(), program, 1).expect("etcd and PostgreSQL start");
    for host in ["a", "b", "c"] {
        let address = network.add_host(host).unwrap();
        elastin.add_server_on(&network, host, address).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 3).await;
    let load = Load::start(&cluster);
    go_on(Duration::from_secs(1)).await;

    // Two servers can't reach each other, while everybody else reaches both.
    network.cut("a", "b").unwrap();
    go_on(Duration::from_secs(3)).await;
    network.mend("a", "b").unwrap();
    await_service(&cluster).await;
    assert_eq!(cluster.server_names().len(), 3, "both have been there all the time");

    // A server reaches nobody, not even coordination, for longer than its lease.
    network.isolate("c", true).unwrap();
    go_on(LONGER_THAN_A_LEASE).await;
    await_service(&cluster).await;
    network.isolate("c", false).unwrap();
    await_servers(&cluster, 2).await;
    end_and_check("a network that was cut", load, cluster).await;
}
