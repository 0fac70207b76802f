//! Faults on real processes over etcd and PostgreSQL, under load. Callers keep a history; what the ledgers hold in the end
//! must agree with it, and does not if the fences are switched off.

use std::time::Duration;

use elastin::admin::AdminError;
use elastin::{Cluster, MoveError};
use elastin_backends::{BackendError, Disk, EtcdCluster, Network, PostgresServer, skipped};
use elastin_testkit::{
    EtcdElastin, History, LEDGERS, Ledger, Load, SLOW_TURN_BEGAN, app, await_service, violations, wait_for,
};

/// Longer than a lease and the hold after it.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(7);
/// A sender whose numbers nobody looks at.
const NOBODY: u32 = u32::MAX;
/// More appends than a full disk can have room for: each is a new version of a row.
const APPENDS_MAX: u64 = 20_000;
/// Room for an empty database, and for the load of a test until the disk is filled on purpose.
const DISK_BYTES: u64 = 200 << 20;

async fn start(etcd_members: usize, more: &[&str]) -> (EtcdElastin, Cluster) {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start(app(), program, etcd_members).expect("etcd and PostgreSQL start");
    elastin.log("warn,elastin_testkit=info");
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

/// Lets the load run for a while: what a fault meets is up to chance, so it is given some.
async fn go_on(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Ends the load: what the callers know.
async fn end(what: &str, load: Load) -> History {
    let history = load.end().await;
    let counts = history.counts();
    eprintln!("{what}: {counts:?}");
    assert!(counts.acknowledged > 100, "the load was real: {counts:?}");
    history
}

async fn end_and_check(what: &str, load: Load, cluster: Cluster) {
    let history = end(what, load).await;
    let found = violations(&history, cluster.client()).await;
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_an_etcd_member_are_killed() {
    let (mut elastin, cluster) = start(3, &[]).await;
    let load = Load::start(cluster.client());
    for (round, (old, new)) in [("a", "d"), ("b", "e"), ("c", "f")].into_iter().enumerate() {
        go_on(Duration::from_millis(700)).await;
        tokio::task::block_in_place(|| {
            elastin.kill_server(old);
            elastin.etcd.kill(round);
        });
        elastin.add_server(new).unwrap();
        await_servers(&cluster, 3).await;
        await_service(cluster.client()).await;
        tokio::task::block_in_place(|| elastin.etcd.restart(round).unwrap());
    }
    end_and_check("killed servers and etcd members", load, cluster).await;
}

/// Stops a server for longer than its lease, under load and in the middle of a turn, and lets it go on when the load is over;
/// then kills the others, so that what the ledgers hold comes from the store. Everything that can't be, given what callers
/// know.
async fn stop_a_server(what: &str, more: &[&str]) -> Vec<String> {
    let (mut elastin, cluster) = start(1, more).await;
    let load = Load::start(cluster.client());
    go_on(Duration::from_secs(1)).await;
    await_service(cluster.client()).await;
    let ledger = cluster.client().actor::<Ledger>(0);
    match cluster.move_actor(ledger.id(), "b").await {
        Ok(()) | Err(AdminError::Move(MoveError::AlreadyThere)) => {}
        Err(error) => panic!("ledger 0 does not go to b: {error}"),
    }
    let slowly = async move {
        let call = ledger.append_slowly(NOBODY, 1, LONGER_THAN_A_LEASE);
        call.deadline(Duration::from_secs(60)).await
    };
    tokio::spawn(slowly);
    wait_for("the slow turn to begin", || {
        elastin.words_of("b").contains(SLOW_TURN_BEGAN)
    })
    .await;
    elastin.server("b").pause();
    go_on(LONGER_THAN_A_LEASE).await;
    await_service(cluster.client()).await;
    let history = end(what, load).await;
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
    violations(&history, cluster.client()).await
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
    let load = Load::start(cluster.client());
    for _ in 0..2 {
        go_on(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| elastin.postgres.restart().unwrap());
        await_service(cluster.client()).await;
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
    await_service(cluster.client()).await;
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
            skipped(&format!(
                "the network is not cut, because this user may not make one: {error}"
            ));
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
    let load = Load::start(cluster.client());
    go_on(Duration::from_secs(1)).await;

    // Two servers can't reach each other, while everybody else reaches both.
    network.cut("a", "b").unwrap();
    go_on(Duration::from_secs(3)).await;
    network.mend("a", "b").unwrap();
    await_service(cluster.client()).await;
    assert_eq!(cluster.server_names().len(), 3, "both have been there all the time");

    // A server reaches nobody, not even coordination, for longer than its lease.
    network.isolate("c", true).unwrap();
    go_on(LONGER_THAN_A_LEASE).await;
    await_service(cluster.client()).await;
    network.isolate("c", false).unwrap();
    await_servers(&cluster, 2).await;
    end_and_check("a network that was cut", load, cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_of_the_store_is_full_for_a_while() {
    let disk = match Disk::create(DISK_BYTES) {
        Ok(disk) => disk,
        Err(error) => {
            skipped(&format!(
                "no disk is filled, because this user may not make one: {error}"
            ));
            return;
        }
    };
    let etcd = EtcdCluster::start_at(std::net::Ipv4Addr::LOCALHOST, 1).expect("etcd starts");
    let postgres = PostgresServer::start_on(&disk).expect("PostgreSQL starts");
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start_over(etcd, postgres, app(), program).unwrap();
    for server in ["a", "b"] {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 2).await;
    let load = Load::start(cluster.client());
    go_on(Duration::from_secs(1)).await;
    disk.fill().unwrap();
    // What can't be saved is not acknowledged, and whoever reads meanwhile reads what was saved.
    wait_until_nothing_is_saved(&cluster).await;
    go_on(Duration::from_secs(1)).await;
    disk.free().unwrap();
    await_service(cluster.client()).await;
    assert_eq!(cluster.server_names().len(), 2, "no server was lost with the disk");
    end_and_check("a full disk", load, cluster).await;
}

/// Appends to a ledger of its own until an append is not acknowledged.
async fn wait_until_nothing_is_saved(cluster: &Cluster) {
    let ledger = cluster.client().actor::<Ledger>(LEDGERS);
    for number in 1..APPENDS_MAX {
        let appended = ledger.append(0, number).deadline(Duration::from_secs(10)).await;
        if appended.is_err() {
            return;
        }
    }
    panic!("the disk is full, and everything is saved all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_whose_clocks_are_an_hour_off_work_like_others() {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start(app(), program, 1).expect("etcd and PostgreSQL start");
    elastin.add_server("a").unwrap();
    match elastin.add_server_with_clock("b", "+1h") {
        Ok(()) => {}
        Err(error) if matches!(error.downcast_ref(), Some(BackendError::NotInstalled { .. })) => {
            skipped(&format!("no clock is wrong: {error}"));
            return;
        }
        Err(error) => panic!("{error}"),
    }
    elastin.add_server_with_clock("c", "-1h").unwrap();
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 3).await;
    let load = Load::start(cluster.client());
    go_on(LONGER_THAN_A_LEASE).await;
    assert_eq!(cluster.server_names().len(), 3, "nobody was taken for dead");
    // The one whose clock is right dies: the others take over as fast as any.
    elastin.kill_server("a");
    await_servers(&cluster, 2).await;
    await_service(cluster.client()).await;
    tokio::task::block_in_place(|| elastin.end_server("b"));
    await_service(cluster.client()).await;
    end_and_check("clocks an hour off", load, cluster).await;
}
