//! Clusters over etcd and PostgreSQL. These tests run one at a time, because a process runs one etcd cluster at a time.

mod drains_and_upgrades;
mod faults;
mod stopped_client;
mod tls;
mod traces;

use elastin::Cluster;
use elastin_testkit::{EtcdElastin, app, wait_for};

/// The program of the servers.
const PROGRAM: &str = env!("CARGO_BIN_EXE_testkit-server");

/// Starts servers with this log filter over one etcd member, and connects to them once all have joined.
async fn start(log_filter: &str, servers: &[&str]) -> (EtcdElastin, Cluster) {
    let mut elastin = EtcdElastin::start(app(), PROGRAM, 1).expect("etcd and PostgreSQL start");
    elastin.log(log_filter);
    for server in servers {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    await_servers(&cluster, servers.len()).await;
    (elastin, cluster)
}

/// Waits until the cluster has this number of servers.
async fn await_servers(cluster: &Cluster, count: usize) {
    wait_for("the servers to join or leave", || cluster.server_names().len() == count).await;
}
