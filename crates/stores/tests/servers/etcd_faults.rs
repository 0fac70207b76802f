//! etcd behind links that break and are slow, killed in the middle of writes, with a history that was forgotten, and without room.

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
async fn scripts_hold_when_the_link_breaks_before_every_step_and_when_it_is_slow() {
    let cluster = EtcdCluster::start(1).unwrap();
    let proxy = Proxy::start(cluster.address(0)).unwrap();
    for (link, name) in Link::ALL.into_iter().zip(["cut", "slow"]) {
        let store = connect_as(name, vec![proxy.address().to_string()]);
        blocking(|| links::check_coordination(link, &proxy, Arc::new(store)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_member_killed_in_mid_write_has_kept_what_it_acknowledged() {
    let mut cluster = EtcdCluster::start(1).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        let seen = torn::check(Written::Coordination(&store), || cluster.restart(0).unwrap());
        assert!(
            seen.not_applied + seen.in_doubt > 0,
            "nothing met the member's absence: {seen:?}"
        );
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_killed_in_mid_write_one_after_the_other_have_kept_what_they_acknowledged() {
    let mut cluster = EtcdCluster::start(3).unwrap();
    let store = connect(cluster.endpoints());
    blocking(|| {
        torn::check(Written::Coordination(&store), || {
            // Among them is the one that is spoken to.
            for member in 0..3 {
                cluster.restart(member).unwrap();
            }
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_from_before_what_is_remembered_is_told_so() {
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
            other => panic!("the history is gone, but {other:?} came"),
        };
        assert_eq!(oldest, forgotten);
        // As the protocol asks: read all, and watch from there.
        let revision = revision_of(ask_coordination(&store, get("key")));
        assert_eq!(revision, last);
        let watching = Watching::start(&store, "", revision.next());
        let next = put("4");
        assert_eq!(watching.next().unwrap().revision, next);
        // From the oldest on a watch still sees all.
        let watching = Watching::start(&store, "", oldest);
        let mut seen = Vec::new();
        while seen.last() != Some(&next) {
            let batch = watching.next().unwrap();
            seen.extend(batch.changes.iter().map(|change| change.revision()));
        }
        assert_eq!(seen, [forgotten, last, next]);
    });
}

/// How much the member may keep: some large values.
const QUOTA_BYTES: u64 = 4 << 20;
const LARGE_BYTES: usize = 256 << 10;
/// More large values than there is room for.
const WRITES_MAX: u64 = 10 * QUOTA_BYTES / LARGE_BYTES as u64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_writes_are_refused_and_go_on_when_there_is_some() {
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
        let refused = refused.expect("the member runs out of room");
        assert_eq!(refused, Err(StoreFailure::DiskFull.into()));
        // A small one, and a lease, are refused as well: the member writes nothing more. What is there can be read.
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
