//! A server that loses its lease while it joins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use elastin_clock::Clock;
use elastin_cluster::{Planted, Security};
use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationReply, CoordinationRequest, Done, LeaseId, Revision, WatchGuard,
    WatchSink, Write,
};
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use tokio::sync::oneshot;

use super::{NodeOptions, Place, serve};
use crate::Elastin;
use crate::address::Stores;
use crate::member::{LEASE_TTL, LOOPBACK};

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
        let CoordinationRequest::Commit(commit) = request else {
            return None;
        };
        let bound = commit.writes.iter().find_map(|write| match write {
            Write::Put { lease, .. } => *lease,
            Write::Delete { .. } => None,
        })?;
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

/// Runs a server that loses its lease so many times, until it takes part, and lets it end then.
async fn serve_with(evictions: u32) -> anyhow::Result<()> {
    let coordination = Arc::new(Impatient {
        coordination: Arc::new(MemoryCoordination::start()),
        evictions_left: Arc::new(AtomicU32::new(evictions)),
    });
    let place = Place {
        stores: Stores {
            coordination,
            state: Arc::new(MemoryState::start()),
        },
        security: Security::Trusting,
        supervised: false,
    };
    let options = NodeOptions {
        name: "server".into(),
        cpu_share: None,
        listen: LOOPBACK,
        advertise: None,
        lease_ttl: LEASE_TTL,
        period: Duration::from_secs(1),
        planted: Planted::default(),
        net_mbit: None,
        metrics: None,
        clock: Clock::start(),
    };
    let (joining, joined) = oneshot::channel();
    let told_to_end = async move {
        // If it never takes part, it ends by itself.
        if joined.await.is_err() {
            std::future::pending().await
        }
    };
    let app = Elastin::app().name("joining");
    let told_to_leave = std::future::pending();
    let server = serve(app, place, options, told_to_leave, told_to_end, move |_, _| {
        let _ = joining.send(());
    });
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
