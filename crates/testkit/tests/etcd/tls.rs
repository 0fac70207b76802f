//! Clusters over etcd and PostgreSQL whose members authenticate with certificates, and whose stores use TLS.

use std::time::Duration;

use elastin::{Authority, Cluster, ClusterAddress};
use elastin_test_servers::{EtcdCluster, PostgresServer};
use elastin_testkit::{Caller, EtcdElastin, Ledger, app, wait_for};

use super::{PROGRAM, start};

const CALL_DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_tls_stores_keeps_its_state() {
    let etcd = EtcdCluster::start_secured(1).expect("etcd starts");
    let postgres = PostgresServer::start_secured().expect("PostgreSQL starts");
    let mut elastin = EtcdElastin::start_over(etcd, postgres, app(), PROGRAM).unwrap();
    elastin.add_server("a").unwrap();
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    let ledger = cluster.client().actor::<Ledger>(1);
    assert_eq!(ledger.append(1, 1).deadline(CALL_DEADLINE).await, Ok(1));
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_is_refused() {
    let (mut elastin, cluster) = start("warn", &["a"]).await;
    let caller = Caller::start(cluster.client().clone());
    caller.await_round().await;

    // An authority for the same cluster name, so that only its key differs.
    let theirs = Authority::create(app().cluster_name()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    theirs.issue("untrusted", true, directory.path()).unwrap();
    elastin.add_untrusted_server("untrusted", directory.path()).unwrap();
    wait_for("the untrusted server to end", || elastin.has_ended("untrusted")).await;
    let refused =
        "the servers of this cluster would reject this process: they authenticate with certificates of the authority ";
    let output = elastin.output_of("untrusted");
    assert!(output.contains(refused), "{output}");
    assert_eq!(cluster.server_names(), ["a"]);

    let address = ClusterAddress {
        certificates: Some(directory.path().to_owned()),
        ..elastin.address("caller").unwrap()
    };
    let error = Cluster::connect(&app(), &address, "caller")
        .await
        .err()
        .expect("it is refused");
    assert!(error.to_string().starts_with(refused), "{error}");
    caller.end().await;
    cluster.leave().await;
}
