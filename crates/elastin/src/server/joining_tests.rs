//! A server that loses its lease, or is told to leave, while it joins.

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

use super::{NodeOptions, Place, serve};
use crate::Elastin;
use crate::address::Stores;
use crate::member::{LEASE_TTL, LOOPBACK};

const NAME: &str = "server";

/// No machine is so slow.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Coordination that ends the leases of the first members right after they have joined: as on a machine that is so busy that
/// they can't show signs of life in time.
struct Impatient {
    coordination: Arc<MemoryCoordination>,
    evictions_left: Arc<AtomicU32>,
}

impl Impatient {
    /// The lease of a member that joins with this request, if it is to be ended.
    fn evicts(&self, request: &CoordinationRequest) -> Option<LeaseId> {
        let bound = bound_to(request)?;
        let left = &self.evictions_left;
        let evicts = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        evicts.is_ok().then_some(bound)
    }
}

impl Coordination for Impatient {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        let Some(lease) = self.evicts(&request) else {
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

/// Coordination that answers late to whoever joins: it is a member, and does not know it yet.
struct Late {
    coordination: Arc<MemoryCoordination>,
    /// Hears that somebody is a member.
    joined: Mutex<Option<oneshot::Sender<()>>>,
    /// How much later the answer comes; never, if there is none.
    by: Option<Duration>,
}

impl Coordination for Late {
    fn submit(&self, request: CoordinationRequest, done: Done<CoordinationReply, CoordinationError>) {
        let joining = bound_to(&request).and_then(|_| self.joined.lock().take());
        let Some(joining) = joining else {
            return self.coordination.submit(request, done);
        };
        let (by, tokio) = (self.by, tokio::runtime::Handle::current());
        let joined = move |reply| {
            let _ = joining.send(());
            tokio.spawn(async move {
                match by {
                    Some(by) => tokio::time::sleep(by).await,
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

/// The lease that this request binds something to: as whoever joins does.
fn bound_to(request: &CoordinationRequest) -> Option<LeaseId> {
    let CoordinationRequest::Commit(commit) = request else {
        return None;
    };
    commit.writes.iter().find_map(|write| match write {
        Write::Put { lease, .. } => *lease,
        Write::Delete { .. } => None,
    })
}

/// Runs a server that loses its lease so many times, until it takes part, and lets it end then.
async fn serve_with(evictions: u32) -> anyhow::Result<()> {
    let coordination = Arc::new(Impatient {
        coordination: Arc::new(MemoryCoordination::start()),
        evictions_left: Arc::new(AtomicU32::new(evictions)),
    });
    let (joining, joined) = oneshot::channel();
    let told_to_end = async move {
        // If it never takes part, it ends by itself.
        if joined.await.is_err() {
            std::future::pending().await
        }
    };
    let joined = move || {
        let _ = joining.send(());
    };
    serve_over(coordination, std::future::pending(), told_to_end, joined).await
}

/// Runs a server over this coordination.
async fn serve_over(
    coordination: Arc<dyn Coordination>,
    told_to_leave: impl Future<Output = ()>,
    told_to_end: impl Future<Output = ()>,
    joined: impl FnOnce(),
) -> anyhow::Result<()> {
    let place = Place {
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
    let server = serve(app, place, options, told_to_leave, told_to_end, |_, _| joined());
    let ended = tokio::time::timeout(WAIT_MAX, server).await;
    ended.expect("it joins, or gives up")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_lease_while_it_joins_joins_again() {
    for evictions in [0, 1, super::joining::JOINS_MAX - 1] {
        let ended = serve_with(evictions).await;
        assert!(ended.is_ok(), "after {evictions} evictions: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_lease_again_and_again_gives_up_and_says_so() {
    let error = serve_with(super::joining::JOINS_MAX)
        .await
        .expect_err("it never was there for long");
    assert!(error.to_string().contains("lost its lease"), "{error}");
}

/// Runs a server that is told to leave when it is a member, of which it hears so much later. Whether it still is one when it
/// has ended.
async fn is_member_after_leaving(answered_after: Option<Duration>) -> bool {
    let coordination = Arc::new(MemoryCoordination::start());
    let (joining, joined) = oneshot::channel();
    let late = Late {
        coordination: Arc::clone(&coordination),
        joined: Mutex::new(Some(joining)),
        by: answered_after,
    };
    let told_to_leave = async move { joined.await.expect("it joins") };
    let ended = serve_over(Arc::new(late), told_to_leave, std::future::pending(), || {}).await;
    ended.expect("it goes as it was told");

    let (found, member) = oneshot::channel();
    let get = CoordinationRequest::Get {
        key: MemberRecord::key(NAME),
    };
    let found = Box::new(move |reply| found.send(reply).expect("it is awaited"));
    coordination.submit(get, found);
    match member.await.expect("the store answers") {
        Ok(CoordinationReply::Got { entry, .. }) => entry.is_some(),
        other => panic!("not what was asked for: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_leave_while_it_joins_leaves_as_any_other() {
    assert!(!is_member_after_leaving(Some(Duration::from_millis(100))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_leave_and_never_hears_that_it_has_joined_ends() {
    assert!(is_member_after_leaving(None).await, "its lease has yet to run out");
}
