//! Faults on real processes over etcd and PostgreSQL, under load. Callers keep a history; the final ledgers
//! must agree with it, and do not if fences are switched off.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use elastin::admin::AdminError;
use elastin::prelude::*;
use elastin::types::ActorId;
use elastin::{Cluster, MoveError};
use elastin_test_servers::{BackendError, Disk, EtcdCluster, Network, PostgresServer, skipped};
use elastin_testkit::{
    EtcdElastin, History, LEDGERS, Ledger, Load, Probe, ReminderActor, SLOW_TURN_BEGAN, SLOW_TURN_ENDS, Testimony,
    WITNESSES, Witness, app, await_service, violations, wait_for, wait_for_some,
};

use super::{PROGRAM, await_servers};

/// Longer than a lease and the takeover delay after it.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(7);
/// The time after which a server without coordination has certainly stopped.
const LEASE_AND_MARGIN: Duration = Duration::from_secs(3);
/// Long enough to pause the server before, and shorter than its pause.
const DUE_AFTER: Duration = Duration::from_secs(4);
/// The deadline of a call of these tests, after which it is retried.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// The sender whose turn takes long.
const SLOW_SENDER: u32 = u32::MAX;
/// Witnesses that the load does not observe.
const UNWATCHED_WITNESSES: std::ops::Range<u64> = WITNESSES..WITNESSES + 4;
/// The time in which servers can't reach each other: longer than the deadline of a call.
const CUT_TIME: Duration = Duration::from_secs(3);
/// More appends than a full disk can have room for: each is a new version of a row.
const APPENDS_MAX: u64 = 20_000;
/// Room for an empty database, and for the load of a test until the disk is filled on purpose.
const DISK_BYTES: u64 = 200 << 20;

/// Three servers, of which `b` gets further arguments.
async fn start(etcd_members: usize, of_b: &[&str]) -> (EtcdElastin, Cluster) {
    let mut elastin = EtcdElastin::start(app(), PROGRAM, etcd_members).expect("etcd and PostgreSQL start");
    elastin.log("warn,elastin_testkit=info");
    for (server, more) in [("a", &[][..]), ("b", of_b), ("c", &[])] {
        elastin.add_server_with(server, more).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 3).await;
    (elastin, cluster)
}

/// Lets the load run for a while: a fault hits different moments by chance.
async fn run_load(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Ends the load and returns its history.
async fn end(label: &str, load: Load) -> History {
    let history = load.end().await;
    let counts = history.counts();
    eprintln!("{label}: {counts:?}");
    assert!(
        counts.acknowledged > 100 && counts.observations > 100,
        "the load was real: {counts:?}"
    );
    history
}

async fn end_and_check(label: &str, load: Load, testimony: Testimony, cluster: Cluster) {
    let mut history = end(label, load).await;
    testimony.end(&mut history);
    let found = violations(&history, cluster.client()).await;
    assert!(found.is_empty(), "{label}:\n{}", found.join("\n"));
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_and_etcd_members_lose_nothing() {
    let (mut elastin, cluster) = start(3, &[]).await;
    let load = Load::start(cluster.client());
    let testimony = Testimony::start(cluster.client()).unwrap();
    for (round, (old, new)) in [("a", "d"), ("b", "e"), ("c", "f")].into_iter().enumerate() {
        run_load(Duration::from_millis(700)).await;
        tokio::task::block_in_place(|| {
            elastin.kill_server(old);
            elastin.etcd.kill(round);
        });
        elastin.add_server(new).unwrap();
        await_servers(&cluster, 3).await;
        await_service(cluster.client()).await;
        tokio::task::block_in_place(|| elastin.etcd.restart(round).unwrap());
    }
    end_and_check("killed servers and etcd members", load, testimony, cluster).await;
}

/// Moves an actor to a server, if it is not there already.
async fn move_to(cluster: &Cluster, actor: &ActorId, server: &str) {
    match cluster.move_actor(actor, server).await {
        Ok(()) | Err(AdminError::Move(MoveError::AlreadyThere)) => {}
        Err(error) => panic!("moving {actor:?} to {server} failed: {error}"),
    }
}

/// Has a witness leave a trace, wherever it is, as soon as it can.
async fn testify(witness: &Ref<Witness>, file: &str) {
    let call = async || witness.testify(file.to_owned()).deadline(CALL_DEADLINE).await;
    wait_for_some("a trace", call).await;
}

/// The fate of a stopped server.
struct Stopped {
    /// All violations found in outcomes and traces.
    found: Vec<String>,
    /// Whether its process ended by itself after it was resumed.
    ended: bool,
}

/// Stops a server for longer than its lease, under load and in the middle of a turn, and sends it more meanwhile, which
/// it receives when it resumes. Then kills the others, so that the ledgers are loaded from the store.
async fn stop_a_server(label: &str, more: &[&str]) -> Stopped {
    let (mut elastin, cluster) = start(1, more).await;
    let load = Load::start(cluster.client());
    run_load(Duration::from_secs(1)).await;
    await_service(cluster.client()).await;
    let ledger = cluster.client().actor::<Ledger>(0);
    move_to(&cluster, ledger.id(), "b").await;
    let slow = tokio::spawn(async move {
        let call = ledger.append_slowly(SLOW_SENDER, 1, LONGER_THAN_A_LEASE);
        call.deadline(Duration::from_secs(60)).await
    });
    wait_for("the slow turn to begin", || {
        elastin.output_of("b").contains(SLOW_TURN_BEGAN)
    })
    .await;
    // The load does not call these witnesses, so none of their turns is running when the server is paused.
    let traces = Testimony::on_request().unwrap();
    let witnesses: Vec<_> = UNWATCHED_WITNESSES
        .map(|witness| cluster.client().actor::<Witness>(witness))
        .collect();
    for witness in &witnesses {
        testify(witness, &traces.file()).await;
        move_to(&cluster, witness.id(), "b").await;
        testify(witness, &traces.file()).await;
        let later = witness.testify_later(traces.file(), DUE_AFTER.as_millis() as u64);
        later.deadline(CALL_DEADLINE).await.unwrap();
    }

    elastin.server("b").pause();
    let stopped_at = Instant::now();
    for witness in &witnesses {
        for _ in 0..5 {
            witness.testify(traces.file()).tell().await.unwrap();
        }
    }
    run_load(LONGER_THAN_A_LEASE.saturating_sub(stopped_at.elapsed())).await;
    await_service(cluster.client()).await;
    for witness in &witnesses {
        testify(witness, &traces.file()).await;
    }
    let mut history = end(label, load).await;
    elastin.server("b").resume();
    // It detects that its lease is lost, or with the planted bug completes its turn.
    wait_for("the stopped server to end or to complete its turn", || {
        elastin.has_ended("b") || elastin.output_of("b").contains(SLOW_TURN_ENDS)
    })
    .await;
    if more.is_empty() {
        wait_for("the stopped server to end", || elastin.has_ended("b")).await;
    } else {
        run_load(Duration::from_secs(2)).await;
    }
    let ended = elastin.has_ended("b");
    let slow = slow.await.expect("the call ends");
    assert!(slow.is_err(), "the stopped server acknowledged: {slow:?}");
    history.appended(0, SLOW_SENDER, 1, slow);
    traces.end(&mut history);

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
    let found = violations(&history, cluster.client()).await;
    Stopped { found, ended }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stopped_for_longer_than_its_lease_ends() {
    let Stopped { found, ended } = stop_a_server("a stopped server", &[]).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(ended, "it has lost its lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_finds_a_stopped_server_that_ignores_its_lease() {
    let Stopped { found, ended } = stop_a_server("a server that ignores its lease", &["--no-lease-fence"]).await;
    eprintln!("found: {} times, first: {:?}", found.len(), found.first());
    assert!(!ended, "it ignores that its lease is lost");
    // The store refuses its writes: only its own turns show that it continues.
    let of_witnesses = found.iter().filter(|found| found.starts_with("witness")).count();
    assert!(of_witnesses > 0, "its turns were not observed: {found:?}");
    assert_eq!(of_witnesses, found.len(), "{}", found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checker_finds_a_stopped_server_without_fences() {
    let unfenced = ["--no-lease-fence", "--no-store-fence"];
    let Stopped { found, .. } = stop_a_server("a stopped server without fences", &unfenced).await;
    eprintln!("found: {} times, first: {:?}", found.len(), found.first());
    let of_ledgers = found.iter().filter(|found| found.starts_with("ledger")).count();
    assert!(of_ledgers > 0, "its overwrites were not observed: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_postgres_and_a_lost_etcd_quorum_lose_nothing() {
    let (mut elastin, cluster) = start(3, &[]).await;
    let load = Load::start(cluster.client());
    let testimony = Testimony::start(cluster.client()).unwrap();
    for _ in 0..2 {
        run_load(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| elastin.postgres.restart().unwrap());
        await_service(cluster.client()).await;
    }
    tokio::task::block_in_place(|| {
        elastin.etcd.kill(0);
        elastin.etcd.kill(1);
    });
    // No server can exclude a takeover: nothing is acknowledged, and no turn runs, not even one that no caller
    // waits for.
    run_load(LEASE_AND_MARGIN).await;
    let before = (load.answered(), testimony.count());
    run_load(LONGER_THAN_A_LEASE).await;
    assert_eq!(
        (load.answered(), testimony.count()),
        before,
        "nothing runs without leases"
    );
    tokio::task::block_in_place(|| {
        elastin.etcd.restart(0).unwrap();
        elastin.etcd.restart(1).unwrap();
    });
    wait_for("calls and turns to resume", || {
        load.answered() > before.0 && testimony.count() > before.1
    })
    .await;
    await_service(cluster.client()).await;
    assert_eq!(
        cluster.server_names().len(),
        3,
        "no server was evicted without a quorum"
    );
    end_and_check("restarts of PostgreSQL and no quorum", load, testimony, cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_network_between_servers_loses_nothing() {
    let mut network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            skipped(&format!("no network to cut: this user may not create one: {error}"));
            return;
        }
    };
    let mut elastin = EtcdElastin::start_at(network.hub(), app(), PROGRAM, 1).expect("etcd and PostgreSQL start");
    for host in ["a", "b", "c"] {
        let address = network.add_host(host).unwrap();
        elastin.add_server_on(&network, host, address).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 3).await;
    let load = Load::start(cluster.client());
    let testimony = Testimony::start(cluster.client()).unwrap();
    run_load(Duration::from_secs(1)).await;

    // Two servers can't reach each other, while all other members reach both.
    network.cut("a", "b").unwrap();
    run_load(CUT_TIME).await;
    network.mend("a", "b").unwrap();
    // Packets of one direction are dropped silently.
    network.lose("a", "b", 100).unwrap();
    run_load(CUT_TIME).await;
    network.lose_nothing().unwrap();
    await_service(cluster.client()).await;
    // A part of the packets between servers is lost.
    for (from, to) in [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")] {
        network.lose(from, to, 20).unwrap();
    }
    run_load(CUT_TIME).await;
    network.lose_nothing().unwrap();
    await_service(cluster.client()).await;
    assert_eq!(cluster.server_names().len(), 3, "no server was evicted");

    // A server reaches all members but not coordination: it must stop by itself before its lease expires.
    let witness = cluster.client().actor::<Witness>(0);
    testify(&witness, &testimony.file()).await;
    move_to(&cluster, witness.id(), "c").await;
    network.lose_port("c", elastin.etcd.address(0).port()).unwrap();
    await_servers(&cluster, 2).await;
    await_service(cluster.client()).await;
    testify(&witness, &testimony.file()).await;
    network.lose_nothing().unwrap();
    wait_for("the server without a lease to end", || elastin.has_ended("c")).await;

    // A server is isolated for longer than its lease.
    network.isolate("b", true).unwrap();
    await_servers(&cluster, 1).await;
    await_service(cluster.client()).await;
    network.isolate("b", false).unwrap();
    wait_for("the isolated server to end", || elastin.has_ended("b")).await;
    end_and_check("a network that was cut", load, testimony, cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_store_loses_nothing() {
    let disk = match Disk::create(DISK_BYTES) {
        Ok(disk) => disk,
        Err(error) => {
            skipped(&format!("no disk to fill: this user may not create one: {error}"));
            return;
        }
    };
    let etcd = EtcdCluster::start_at(std::net::Ipv4Addr::LOCALHOST, 1).expect("etcd starts");
    let postgres = PostgresServer::start_on(&disk).expect("PostgreSQL starts");
    let mut elastin = EtcdElastin::start_over(etcd, postgres, app(), PROGRAM).unwrap();
    for server in ["a", "b"] {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, 2).await;
    let load = Load::start(cluster.client());
    let testimony = Testimony::start(cluster.client()).unwrap();
    run_load(Duration::from_secs(1)).await;
    disk.fill().unwrap();
    // Unsaved appends are not acknowledged, and reads return saved ones only.
    wait_until_nothing_is_saved(&cluster).await;
    run_load(Duration::from_secs(1)).await;
    disk.free().unwrap();
    await_service(cluster.client()).await;
    assert_eq!(cluster.server_names().len(), 2, "no server was lost with the disk");
    end_and_check("a full disk", load, testimony, cluster).await;
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
    panic!("every append was saved although the disk is full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_wrong_wall_clocks_work() {
    let mut elastin = EtcdElastin::start(app(), PROGRAM, 1).expect("etcd and PostgreSQL start");
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
    let testimony = Testimony::start(cluster.client()).unwrap();
    for (server, seconds_ahead) in [("a", 0), ("b", 3600), ("c", -3600)] {
        let is = seconds_ahead_on(&cluster, server).await;
        assert!((is - seconds_ahead).abs() < 60, "the clock of {server} is {is} s ahead");
    }
    run_load(LONGER_THAN_A_LEASE).await;
    assert_eq!(cluster.server_names().len(), 3, "no server was evicted");
    // The server with the right clock dies, and the others take over.
    elastin.kill_server("a");
    await_servers(&cluster, 2).await;
    await_service(cluster.client()).await;
    tokio::task::block_in_place(|| elastin.end_server("b"));
    await_service(cluster.client()).await;
    // The remaining server sets and fires reminders by the same wrong clock.
    let actor = cluster.client().actor::<ReminderActor>(1);
    let set = wait_for_some("a reminder to be set", async || {
        actor.set("due".into(), 300).deadline(CALL_DEADLINE).await
    });
    let set = set.await;
    wait_for_some("the reminder", async || {
        let fired = actor
            .fired()
            .deadline(CALL_DEADLINE)
            .await
            .map_err(|error| error.to_string())?;
        fired
            .contains(&set)
            .then_some(())
            .ok_or_else(|| format!("{set:?} is not in {fired:?}"))
    })
    .await;
    let behind_ms = unix_ms() - set.due_ms as i64;
    assert!(
        (3_500_000..3_700_000).contains(&behind_ms),
        "it was due {behind_ms} ms ago"
    );
    end_and_check("clocks an hour off", load, testimony, cluster).await;
}

fn unix_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.expect("it is later than 1970").as_millis() as i64
}

/// By how many seconds the wall clock of a server is ahead, as an actor on it reads it.
async fn seconds_ahead_on(cluster: &Cluster, server: &str) -> i64 {
    let probe = cluster.client().actor::<Probe>(0);
    let clock = async || probe.wall_clock_ms().deadline(CALL_DEADLINE).await;
    wait_for_some("the probe", clock).await;
    move_to(cluster, probe.id(), server).await;
    let there = wait_for_some("the time there", clock).await;
    (there as i64 - unix_ms()) / 1000
}
