//! Coordination by a real etcd cluster.

use std::sync::Arc;
use std::time::Duration;

use elastin_protocol::store::conformance::coordination_scripts;
use elastin_protocol::store::{
    Change, Commit, Coordination, CoordinationError, CoordinationReply, CoordinationRequest, KeyState, LeaseId,
    Revision, StoreFailure,
};
use elastin_stores::StoreTls;
use elastin_stores::etcd::{EtcdConfig, EtcdCoordination, EtcdError};
use elastin_test_servers::{Certificates, EtcdCluster, Proxy, free_port};

use crate::blocking::{CoordinationUnderTest, Watching, ask_coordination};
use crate::store_tls;

/// Longer than a cluster whose members are killed one after another needs to elect leaders, on any machine.
const LONG_LEASE: Duration = Duration::from_secs(60);

pub(crate) fn connect(endpoints: Vec<String>) -> EtcdCoordination {
    connect_as("test", endpoints)
}

/// Connects as an Elastin cluster of this name.
pub(crate) fn connect_as(cluster: &str, endpoints: Vec<String>) -> EtcdCoordination {
    let config = EtcdConfig {
        endpoints,
        cluster: cluster.to_owned(),
        tls: None,
    };
    EtcdCoordination::new(&config).expect("the endpoints are valid")
}

/// Runs blocking work within an async test.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

pub(crate) fn revision_of(reply: Result<CoordinationReply, CoordinationError>) -> Revision {
    match reply {
        Ok(CoordinationReply::Committed { revision } | CoordinationReply::Got { revision, .. }) => revision,
        other => panic!("no revision in {other:?}"),
    }
}

pub(crate) fn get(key: &str) -> CoordinationRequest {
    CoordinationRequest::Get { key: key.to_owned() }
}

pub(crate) fn value_of(store: &dyn Coordination, key: &str) -> Option<String> {
    match ask_coordination(store, get(key)) {
        Ok(CoordinationReply::Got { entry, .. }) => {
            entry.map(|entry| String::from_utf8(entry.value.to_vec()).expect("the tests write text"))
        }
        other => panic!("failed to read {key}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_scripts_pass() {
    let cluster = EtcdCluster::start(3).unwrap();
    let mut subject = CoordinationUnderTest::new(Arc::new(connect(cluster.endpoints())));
    blocking(|| {
        for script in coordination_scripts() {
            script.run(&mut subject).unwrap();
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_watches_survive_failover() {
    let mut cluster = EtcdCluster::start(3).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        let lease = grant(&store, LONG_LEASE);
        let first = revision_of(ask_coordination(&store, Commit::put_bound("bound", "1", lease)));
        let watching = Watching::start(&store, "", first);
        assert_eq!(watching.next().unwrap().revision, first);

        // Every member is killed once, so that the current server is among them.
        for member in 0..3 {
            cluster.kill(member);
            keep_alive(&store, lease);
            let revision = revision_of(put_with_retries(&store, "key", &member.to_string()));
            let mut seen = watching.next().unwrap();
            while seen.revision < revision {
                seen = watching.next().unwrap();
            }
            let [Change::Put(entry)] = &seen.changes[..] else {
                panic!("expected one put, got {:?}", seen.changes);
            };
            assert_eq!((entry.key.as_str(), entry.modified), ("key", revision));
            cluster.restart(member).unwrap();
        }
        assert_eq!(value_of(&store, "bound").as_deref(), Some("1"));
    });
}

fn grant(store: &dyn Coordination, ttl: Duration) -> LeaseId {
    match ask_coordination(store, CoordinationRequest::Grant { ttl }) {
        Ok(CoordinationReply::Granted { lease, .. }) => lease,
        other => panic!("no lease: {other:?}"),
    }
}

/// Keeps a lease alive like a node: retries until it expires, because the killed member may have been the leader.
fn keep_alive(store: &dyn Coordination, lease: LeaseId) {
    loop {
        match ask_coordination(store, CoordinationRequest::KeepAlive { lease }) {
            Ok(CoordinationReply::KeptAlive { .. }) => return,
            Err(CoordinationError::Failed(StoreFailure::Unreachable { .. } | StoreFailure::Interrupted { .. })) => {}
            other => panic!("keep-alive failed: {other:?}"),
        }
    }
}

/// Writes a key like a careful caller: reads it first after an interruption.
fn put_with_retries(store: &dyn Coordination, key: &str, value: &str) -> Result<CoordinationReply, CoordinationError> {
    loop {
        match ask_coordination(store, Commit::put(key, value.to_owned())) {
            Err(CoordinationError::Failed(StoreFailure::Interrupted { .. })) => {
                let found = ask_coordination(store, get(key));
                if let Ok(CoordinationReply::Got { entry: Some(entry), .. }) = &found
                    && entry.value == value.as_bytes()
                {
                    let revision = entry.modified;
                    return Ok(CoordinationReply::Committed { revision });
                }
            }
            Err(CoordinationError::Failed(StoreFailure::Unreachable { .. })) => {}
            other => return other,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_fail_without_a_quorum_and_recover_with_one() {
    let mut cluster = EtcdCluster::start(3).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        put_with_retries(&store, "key", "before").unwrap();
        cluster.kill(0);
        cluster.kill(1);
        let refused = ask_coordination(&store, get("key"));
        assert!(
            matches!(
                &refused,
                Err(CoordinationError::Failed(StoreFailure::Unreachable { .. }))
            ),
            "{refused:?}"
        );
        let commit = Commit::put("key", "between").when("key", KeyState::Present);
        let written = ask_coordination(&store, commit);
        assert!(matches!(&written, Err(CoordinationError::Failed(_))), "{written:?}");

        cluster.restart(0).unwrap();
        cluster.restart(1).unwrap();
        put_with_retries(&store, "key", "after").unwrap();
        assert_eq!(value_of(&store, "key").as_deref(), Some("after"));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_a_hanging_member_ends_as_interrupted() {
    let cluster = EtcdCluster::start(1).unwrap();
    let proxy = Proxy::start(cluster.address(0)).unwrap();
    let store = connect(vec![proxy.address().to_string()]);
    blocking(|| {
        ask_coordination(&store, Commit::put("key", "1")).unwrap();
        proxy.silence(true);
        let written = ask_coordination(&store, Commit::put("key", "2"));
        let Err(CoordinationError::Failed(failure)) = written else {
            panic!("the member is silent, but the write ended with {written:?}");
        };
        assert!(failure.may_be_applied(), "{failure:?}");
        let address = proxy.address().to_string();
        assert!(failure.to_string().contains(&address), "{failure}");
        proxy.silence(false);
        put_with_retries(&store, "key", "3").unwrap();
        assert_eq!(value_of(&store, "key").as_deref(), Some("3"));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_unreachable_servers() {
    // One with and one without a scheme, as both are accepted.
    let (one, other) = (free_port(), free_port());
    let store = connect(vec![format!("http://127.0.0.1:{one}"), format!("127.0.0.1:{other}")]);
    let refused = blocking(|| ask_coordination(&store, get("key"))).unwrap_err();
    assert!(
        matches!(&refused, CoordinationError::Failed(StoreFailure::Unreachable { .. })),
        "{refused:?}"
    );
    for port in [one, other] {
        assert!(
            refused.to_string().contains(&format!("http://127.0.0.1:{port}: ")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn an_invalid_address_is_refused() {
    let config = |endpoints: &[&str]| EtcdConfig {
        endpoints: endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
        ..EtcdConfig::default()
    };
    assert!(matches!(
        EtcdCoordination::new(&config(&[])),
        Err(EtcdError::NoEndpoint)
    ));
    let refused = EtcdCoordination::new(&config(&["not an address"])).err().unwrap();
    assert!(
        refused
            .to_string()
            .starts_with("`not an address` is not an etcd server"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_authenticates_both_sides() {
    let cluster = EtcdCluster::start_secured(1).unwrap();
    let certificates = cluster.certificates().unwrap();
    let connect = |tls: StoreTls| {
        let config = EtcdConfig {
            endpoints: cluster.endpoints(),
            cluster: "test".to_owned(),
            tls: Some(tls),
        };
        EtcdCoordination::new(&config).expect("the certificates are valid")
    };
    let known = connect(store_tls(certificates, true));
    blocking(|| {
        revision_of(ask_coordination(&known, Commit::put("key", "secret")));
        assert_eq!(value_of(&known, "key").as_deref(), Some("secret"));
    });
    let others = Certificates::make(std::net::Ipv4Addr::LOCALHOST).unwrap();
    for untrusted in [store_tls(certificates, false), store_tls(&others, true)] {
        let untrusted = connect(untrusted);
        let refused = blocking(|| ask_coordination(&untrusted, get("key")));
        assert!(
            matches!(
                refused,
                Err(CoordinationError::Failed(StoreFailure::Unreachable { .. }))
            ),
            "{refused:?}"
        );
    }
}
