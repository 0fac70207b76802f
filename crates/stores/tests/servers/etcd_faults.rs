//! etcd behind broken and slow links, killed during writes, with a compacted history, and out of space.

use std::sync::Arc;

use elastin_protocol::store::{
    Commit, CoordinationError, CoordinationReply, CoordinationRequest, Revision, StoreFailure,
};
use elastin_test_servers::{EtcdCluster, Proxy};

use crate::blocking::{Watching, ask_coordination};
use crate::etcd::{blocking, connect, connect_as, get, revision_of, value_of};
use crate::links::{self, Link};
use crate::torn::{self, Written};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_scripts_pass_over_bad_links() {
    let cluster = EtcdCluster::start(1).unwrap();
    let proxy = Proxy::start(cluster.address(0)).unwrap();
    for (link, name) in Link::ALL.into_iter().zip(["cut", "slow"]) {
        let store = connect_as(name, vec![proxy.address().to_string()]);
        blocking(|| links::check_coordination(link, &proxy, Arc::new(store)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_member_keeps_acknowledged_writes() {
    let mut cluster = EtcdCluster::start(1).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        let seen = torn::check(Written::Coordination(&store), || cluster.restart(0).unwrap());
        assert!(
            seen.not_applied + seen.in_doubt > 0,
            "no write failed while the member was down: {seen:?}"
        );
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_killed_in_turn_keep_acknowledged_writes() {
    let mut cluster = EtcdCluster::start(3).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        torn::check(Written::Coordination(&store), || {
            // One of them is the current server.
            for member in 0..3 {
                cluster.restart(member).unwrap();
            }
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_a_compacted_revision_is_rejected() {
    let cluster = EtcdCluster::start(1).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        let put = |value: &str| revision_of(ask_coordination(&store, Commit::put("key", value.to_owned())));
        let first = put("1");
        let (forgotten, last) = (put("2"), put("3"));
        cluster.compact(forgotten.0).unwrap();
        let watching = Watching::start(&store, "", first);
        let oldest = match watching.next() {
            Err(CoordinationError::Compacted { oldest }) => oldest,
            other => panic!("the history is compacted, but the watch got {other:?}"),
        };
        assert_eq!(oldest, forgotten);
        // As the protocol requires: read everything, then watch from there.
        let revision = revision_of(ask_coordination(&store, get("key")));
        assert_eq!(revision, last);
        let watching = Watching::start(&store, "", revision.next());
        let next = put("4");
        assert_eq!(watching.next().unwrap().revision, next);
        // A watch from the oldest revision still gets every change.
        let watching = Watching::start(&store, "", oldest);
        let mut seen = Vec::new();
        while seen.last() != Some(&next) {
            let batch = watching.next().unwrap();
            seen.extend(batch.changes.iter().map(|change| change.revision()));
        }
        assert_eq!(seen, [forgotten, last, next]);
    });
}

/// The quota of the member: some large values.
const QUOTA_BYTES: u64 = 4 << 20;
const LARGE_BYTES: usize = 256 << 10;
/// More large values than fit.
const WRITES_MAX: u64 = 10 * QUOTA_BYTES / LARGE_BYTES as u64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused_without_space_and_resume_with_it() {
    let cluster = EtcdCluster::start_small(QUOTA_BYTES).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        let put = || ask_coordination(&store, Commit::put("key", "x".repeat(LARGE_BYTES)));
        let mut last = Revision(0);
        let refused = (0..WRITES_MAX).find_map(|_| match put() {
            Ok(CoordinationReply::Committed { revision }) => {
                last = revision;
                None
            }
            other => Some(other),
        });
        let refused = refused.expect("the member runs out of space");
        assert_eq!(refused, Err(StoreFailure::DiskFull.into()));
        // Small writes and leases are refused as well, while reads still succeed.
        let small = ask_coordination(&store, Commit::put("small", "1"));
        assert_eq!(small, Err(StoreFailure::DiskFull.into()));
        assert_eq!(value_of(&store, "small"), None);
        assert_eq!(value_of(&store, "key").map(|value| value.len()), Some(LARGE_BYTES));

        let revision = revision_of(ask_coordination(&store, get("key")));
        assert!(revision >= last);
        cluster.make_room(revision.0).unwrap();
        let ttl = std::time::Duration::from_secs(60);
        let lease = ask_coordination(&store, CoordinationRequest::Grant { ttl });
        assert!(matches!(lease, Ok(CoordinationReply::Granted { .. })), "{lease:?}");
        put().unwrap();
        ask_coordination(&store, Commit::put("small", "2")).unwrap();
        assert_eq!(value_of(&store, "small").as_deref(), Some("2"));
    });
}
