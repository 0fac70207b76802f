//! A client whose process is stopped for longer than its lease, as when a laptop sleeps: it continues by itself.

use std::time::Duration;

use elastin::Client;
use elastin_cluster::MemberRecord;
use elastin_protocol::store::{CoordinationReply, CoordinationRequest};
use elastin_stores::CoordinationExt;
use elastin_stores::etcd::{EtcdConfig, EtcdCoordination};
use elastin_testkit::{EtcdElastin, LEDGERS, Ledger, wait_for};

use super::start;

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

/// The count of numbers in the ledgers.
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
    let (elastin, cluster) = start("warn,elastin=info", &["a", "b"]).await;
    let mut sleeper = elastin.start_client(CLIENT).unwrap();
    for times in 1..=2 {
        within("calls of the client", await_calls(cluster.client())).await;
        sleeper.pause();
        within("the end of its lease", await_end_of_lease(&elastin)).await;
        sleeper.resume();
        wait_for("the client to rejoin", || {
            let output = elastin.output_of(CLIENT);
            output.matches("this client has rejoined its cluster").count() >= times
        })
        .await;
    }
    within("calls of the client", await_calls(cluster.client())).await;
    sleeper.signal("TERM");
    let ended = tokio::task::block_in_place(|| sleeper.wait(WAIT_MAX));
    let output = elastin.output_of(CLIENT);
    assert!(ended && output.contains("nothing is wrong"), "{output}");
    cluster.leave().await;
}
