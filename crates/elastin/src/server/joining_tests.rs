//! Servers that lose their lease, or are asked to leave, while they join.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use elastin_clock::Clock;
use elastin_cluster::{MemberRecord, Planted, Security};
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, LeaseId, Revision, WatchGuard,
    WatchSink, Write,
};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{ClusterContext, NodeOptions, serve};
use crate::Elastin;
use crate::address::Stores;
use crate::member::{LEASE_TTL, LOOPBACK};

const NAME: &str = "server";

/// Far longer than the tests take on a slow machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Coordination that revokes the leases of the first members right after they have joined, as when an overloaded
/// machine keeps them from renewing.
struct EvictingCoordination {
    coordination: Arc<MemoryCoordination>,
    evictions_left: Arc<AtomicU32>,
}

impl EvictingCoordination {
    /// The lease to revoke, if this request is a join and evictions are left.
    fn lease_to_revoke(&self, request: &CoordinationRequest) -> Option<LeaseId> {
        let lease = lease_of(request)?;
        let left = &self.evictions_left;
        let evicts = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        evicts.is_ok().then_some(lease)
    }
}

impl Coordination for EvictingCoordination {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        let Some(lease) = self.lease_to_revoke(&request) else {
            return self.coordination.submit(request, done);
        };
        let coordination = Arc::clone(&self.coordination);
        let joined = move |reply| {
            let revoked = move |_| done(reply);
            coordination.submit(CoordinationRequest::Revoke { lease }, Box::new(revoked));
        };
        self.coordination.submit(request, Box::new(joined));
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        self.coordination.watch(prefix, from, sink)
    }
}

/// Coordination that delays the reply to a join: the server is a member and does not know it yet.
struct DelayedCoordination {
    coordination: Arc<MemoryCoordination>,
    /// Notified of the first join.
    joined: Mutex<Option<oneshot::Sender<()>>>,
    /// The delay of the reply; `None` if it never arrives.
    delay: Option<Duration>,
}

impl Coordination for DelayedCoordination {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        let joining = lease_of(&request).and_then(|_| self.joined.lock().take());
        let Some(joining) = joining else {
            return self.coordination.submit(request, done);
        };
        let (delay, tokio) = (self.delay, tokio::runtime::Handle::current());
        let joined = move |reply| {
            let _ = joining.send(());
            tokio.spawn(async move {
                match delay {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => std::future::pending().await,
                }
                done(reply);
            });
        };
        self.coordination.submit(request, Box::new(joined));
    }

    fn watch(&self, prefix: String, from: Revision, sink: WatchSink) -> WatchGuard {
        self.coordination.watch(prefix, from, sink)
    }
}

/// The lease that this request binds a key to, as every join does.
fn lease_of(request: &CoordinationRequest) -> Option<LeaseId> {
    let CoordinationRequest::Commit(commit) = request else {
        return None;
    };
    commit.writes.iter().find_map(|write| match write {
        Write::Put { lease, .. } => *lease,
        Write::Delete { .. } => None,
    })
}

/// Runs a server that loses its lease `evictions` times, and stops it once it has joined.
async fn serve_with(evictions: u32) -> anyhow::Result<()> {
    let coordination = Arc::new(EvictingCoordination {
        coordination: Arc::new(MemoryCoordination::start()),
        evictions_left: Arc::new(AtomicU32::new(evictions)),
    });
    let (joining, joined) = oneshot::channel();
    let stop_signal = async move {
        // A server that never joins ends by itself.
        if joined.await.is_err() {
            std::future::pending().await
        }
    };
    let joined = move || {
        let _ = joining.send(());
    };
    serve_over(coordination, std::future::pending(), stop_signal, joined).await
}

/// Runs a server over this coordination.
async fn serve_over(
    coordination: Arc<dyn Coordination>,
    leave_signal: impl Future<Output = ()>,
    stop_signal: impl Future<Output = ()>,
    joined: impl FnOnce(),
) -> anyhow::Result<()> {
    let context = ClusterContext {
        stores: Stores {
            coordination,
            state: Arc::new(MemoryState::start()),
        },
        security: Security::Trusting,
        supervised: false,
    };
    let options = NodeOptions {
        name: NAME.into(),
        cpu_share: None,
        busy_poll: true,
        listen: LOOPBACK,
        advertise: None,
        lease_ttl: LEASE_TTL,
        period: Duration::from_secs(1),
        planted: Planted::default(),
        net_mbit: None,
        metrics: None,
        clock: Clock::start(),
    };
    let app = Elastin::app().name("joining");
    let server = serve(app, context, options, leave_signal, stop_signal, |_, _| joined());
    let ended = tokio::time::timeout(WAIT_MAX, server).await;
    ended.expect("it joins, or gives up")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_lease_while_joining_rejoins() {
    for evictions in [0, 1, super::joining::JOINS_MAX - 1] {
        let ended = serve_with(evictions).await;
        assert!(ended.is_ok(), "after {evictions} evictions: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_losing_its_lease_fails_with_an_error() {
    let error = serve_with(super::joining::JOINS_MAX)
        .await
        .expect_err("every lease was revoked");
    assert!(error.to_string().contains("lost its lease"), "{error}");
}

/// Runs a server that is asked to leave once it is a member, while the reply to its join is delayed. Returns whether
/// its record is still there after it has ended.
async fn is_member_after_leaving(delay: Option<Duration>) -> bool {
    let coordination = Arc::new(MemoryCoordination::start());
    let (joining, joined) = oneshot::channel();
    let delayed = DelayedCoordination {
        coordination: Arc::clone(&coordination),
        joined: Mutex::new(Some(joining)),
        delay,
    };
    let leave_signal = async move { joined.await.expect("it joins") };
    let ended = serve_over(Arc::new(delayed), leave_signal, std::future::pending(), || {}).await;
    ended.expect("it leaves");

    let (found, member) = oneshot::channel();
    let get = CoordinationRequest::Get {
        key: MemberRecord::key(NAME),
    };
    let found = Box::new(move |reply| found.send(reply).expect("it is awaited"));
    coordination.submit(get, found);
    match member.await.expect("the store answers") {
        Ok(CoordinationReply::Got { entry, .. }) => entry.is_some(),
        other => panic!("a get was answered by {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_asked_to_leave_while_joining_leaves_cleanly() {
    assert!(!is_member_after_leaving(Some(Duration::from_millis(100))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_asked_to_leave_ends_without_the_reply_to_its_join() {
    assert!(is_member_after_leaving(None).await, "its lease has not expired yet");
}
