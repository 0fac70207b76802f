//! A cluster whose etcd and PostgreSQL speak TLS only, set up from the command line.

use std::time::Duration;

use elastin_backends::{EtcdCluster, PostgresServer};
use elastin_testkit::{EtcdElastin, Ledger, app};

const CALL_DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_what_it_has_behind_tls() {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let etcd = EtcdCluster::start_secured(1).expect("etcd starts");
    let postgres = PostgresServer::start_secured().expect("PostgreSQL starts");
    let mut elastin = EtcdElastin::start_over(etcd, postgres, app(), program).unwrap();
    elastin.add_server("a").unwrap();
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    let ledger = cluster.client().actor::<Ledger>(1);
    assert_eq!(ledger.append(1, 1).deadline(CALL_DEADLINE).await, Ok(1));
    cluster.leave().await;
}
