//! Clusters over a real etcd cluster and a real PostgreSQL server.

use std::time::Duration;

use elastin::Cluster;
use elastin::admin::AdminError;
use elastin_testkit::{EtcdElastin, Journal, Ledger, app, wait_for};

const CALL_DEADLINE: Duration = Duration::from_secs(30);

async fn start(servers: &[&str]) -> (EtcdElastin, Cluster) {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start(app(), program, 1).expect("etcd and PostgreSQL start");
    for server in servers {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, servers).await;
    (elastin, cluster)
}

async fn await_servers(cluster: &Cluster, names: &[&str]) {
    wait_for("the servers to be there", || {
        let mut there = cluster.server_names();
        there.sort();
        there == names
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_live_move_and_survive_a_drain() {
    let (mut elastin, cluster) = start(&["a", "b", "c"]).await;
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
    let nobody = cluster.move_actor(&actor, "nobody").await;
    assert_eq!(nobody, Err(AdminError::NoSuchServer("nobody".into())));

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
    cluster.leave().await;
}
