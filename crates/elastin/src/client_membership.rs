//! Keeps a client a member of its cluster: follows the membership, and rejoins after the client has lost its lease.
//!
//! ```text
//!   member ── evicted ──► pending calls end ──► join, with backoff ──► new member
//! ```
//!
//! A sleeping laptop, a stopped process and an unreachable etcd all cost a client its lease. The application does not
//! notice, so its clients and references must work again afterwards.

use std::sync::{Arc, Weak};
use std::time::Duration;

use elastin_cluster::{MembershipUpdate, Roster};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::App;
use crate::admin::AdminService;
use crate::member::{Member, MemberOptions, NodeEvent};
use crate::trust;

/// The first backoff between two attempts to rejoin, which doubles with each attempt.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest backoff, so that a client is back soon after the cause is gone.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The receivers of a member's events and membership updates.
type EventReceivers = (
    mpsc::UnboundedReceiver<NodeEvent>,
    mpsc::UnboundedReceiver<MembershipUpdate>,
);

/// The task that keeps a client a member of its cluster, until the client is dropped.
pub(crate) struct ClientMembership {
    pub(crate) app: App,
    /// The options of each join.
    pub(crate) options: MemberOptions,
    /// The client's current member. Weak, so that the task ends with the client.
    pub(crate) current: Weak<Mutex<Arc<Member>>>,
    pub(crate) rosters: watch::Sender<Roster>,
    pub(crate) admin: Arc<Mutex<AdminService>>,
}

impl ClientMembership {
    /// Runs until the client has left or was dropped.
    pub(crate) async fn run(self, mut receivers: EventReceivers) {
        while self.follow(&mut receivers).await {
            let Some(rejoined) = self.rejoin().await else { return };
            receivers = rejoined;
        }
    }

    /// Handles the current member's events until its membership ends. Returns whether the client should rejoin.
    async fn follow(&self, (events, membership_updates): &mut EventReceivers) -> bool {
        loop {
            tokio::select! {
                Some(event) = events.recv() => {
                    let Some(member) = self.member() else { return false };
                    if let NodeEvent::Frame { from, payload, .. } = event {
                        let roster = self.rosters.borrow().clone();
                        // Only answers matter: a client serves no requests.
                        self.admin.lock().handle_frame(&member.driver, &roster, from, &payload);
                    }
                }
                update = membership_updates.recv() => match update {
                    Some(MembershipUpdate::Roster(roster)) => {
                        let Some(member) = self.member() else { return false };
                        self.admin.lock().roster_changed(&member.driver, &roster);
                        if self.rosters.send(roster).is_err() {
                            return false;
                        }
                    }
                    Some(MembershipUpdate::Evicted) => return true,
                    None => return false,
                },
            }
        }
    }

    /// Rejoins as a new member, with unlimited retries; `None` if the client was dropped.
    async fn rejoin(&self) -> Option<EventReceivers> {
        tracing::warn!("this client has lost its lease: rejoining its cluster");
        let ended = self.member()?;
        ended.driver.end();
        // Answers to pending requests can't reach the ended member.
        self.admin.lock().roster_changed(&ended.driver, &Roster::default());
        let sleeper = self.options.clock.sleeper("a client that rejoins");
        let mut backoff = BACKOFF_MIN;
        loop {
            match self.join(&ended).await {
                Ok(mut member) => {
                    let receivers = member.take_receivers();
                    let member = Arc::new(member);
                    tracing::info!(node = %member.me, "this client has rejoined its cluster");
                    match self.current.upgrade() {
                        Some(current) => *current.lock() = member,
                        None => {
                            member.membership.leave().await;
                            return None;
                        }
                    }
                    return Some(receivers);
                }
                Err(error) => tracing::warn!("failed to rejoin the cluster, retrying: {error:#}"),
            }
            // Ends the task if the client was dropped meanwhile.
            self.current.upgrade()?;
            sleeper.sleep_until(Some(self.options.clock.now() + backoff)).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn join(&self, ended: &Member) -> anyhow::Result<Member> {
        // The cluster may have a new authority by now.
        trust::check(&self.options.coordination, &self.options.security).await?;
        ended.rejoin(&self.app, self.options.clone()).await
    }

    fn member(&self) -> Option<Arc<Member>> {
        let current = self.current.upgrade()?;
        let member = Arc::clone(&current.lock());
        Some(member)
    }
}
