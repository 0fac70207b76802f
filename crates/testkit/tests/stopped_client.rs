//! A client whose process is stopped for longer than its lease, as when a laptop sleeps: it continues by itself.

use std::time::Duration;

use elastin::{Client, Cluster};
use elastin_cluster::MemberRecord;
use elastin_protocol::store::{CoordinationReply, CoordinationRequest};
use elastin_stores::CoordinationExt;
use elastin_stores::etcd::{EtcdConfig, EtcdCoordination};
use elastin_testkit::{EtcdElastin, LEDGERS, Ledger, app, wait_for};

const CLIENT: &str = "sleeper";
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Far longer than the test takes on a slow machine.
const WAIT_MAX: Duration = Duration::from_secs(90);

async fn within(label: &str, event: impl Future<Output = ()>) {
    let result = tokio::time::timeout(WAIT_MAX, event).await;
    assert!(result.is_ok(), "timed out waiting for {label}");
}

async fn start() -> (EtcdElastin, Cluster) {
    let program = env!("CARGO_BIN_EXE_testkit-server");
    let mut elastin = EtcdElastin::start(app(), program, 1).expect("etcd and PostgreSQL start");
    elastin.log("warn,elastin=info");
    for server in ["a", "b"] {
        elastin.add_server(server).unwrap();
    }
    let cluster = elastin.connect().await.expect("there is a server to connect to");
    wait_for("the servers to be there", || cluster.server_names().len() == 2).await;
    (elastin, cluster)
}

/// Waits until etcd has removed the client's member record.
async fn await_end_of_lease(elastin: &EtcdElastin) {
    let config = EtcdConfig {
        endpoints: elastin.etcd.endpoints(),
        cluster: "testkit".into(),
        tls: None,
    };
    let etcd = EtcdCoordination::new(&config).expect("the addresses are fine");
    let key = MemberRecord::key(CLIENT);
    loop {
        let record = etcd.call(CoordinationRequest::Get { key: key.clone() }).await;
        match record.expect("etcd is there") {
            CoordinationReply::Got { entry: None, .. } => return,
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// How many numbers the ledgers hold.
async fn numbers(client: &Client) -> usize {
    let mut count = 0;
    for ledger in 0..LEDGERS {
        let log = client.actor::<Ledger>(ledger).log().deadline(CALL_DEADLINE).await;
        count += log.expect("the servers serve").values().map(Vec::len).sum::<usize>();
    }
    count
}

/// Waits until further calls of the client have succeeded.
async fn await_calls(client: &Client) {
    const CALLS: usize = 200;
    let enough = numbers(client).await + CALLS;
    while numbers(client).await < enough {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stopped_for_longer_than_its_lease_continues() {
    let (elastin, cluster) = start().await;
    let mut sleeper = elastin.start_client(CLIENT).unwrap();
    for times in 1..=2 {
        within("calls of the client", await_calls(cluster.client())).await;
        sleeper.pause();
        within("the end of its lease", await_end_of_lease(&elastin)).await;
        sleeper.resume();
        wait_for("the client to rejoin", || {
            let words = elastin.words_of(CLIENT);
            words.matches("this client has rejoined its cluster").count() >= times
        })
        .await;
    }
    within("calls of the client", await_calls(cluster.client())).await;
    sleeper.signal("TERM");
    let ended = tokio::task::block_in_place(|| sleeper.wait(WAIT_MAX));
    let words = elastin.words_of(CLIENT);
    assert!(ended && words.contains("nothing is wrong"), "{words}");
    cluster.leave().await;
}
