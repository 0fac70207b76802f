//! Keeps a client a member of its cluster: hears what its members say, and joins again when it has lost its lease.
//!
//! ```text
//!   member ── evicted ──► its calls end, as far as their fate is known ──► joins, again and again ──► a new member
//! ```
//!
//! A laptop that sleeps, a process that is stopped, or etcd that can't be reached for longer than the lease: all of that passes,
//! and a client whose application has not been told of anything must work again then.

use std::sync::{Arc, Weak};
use std::time::Duration;

use elastin_cluster::{MembershipUpdate, Roster};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::App;
use crate::admin::AdminService;
use crate::member::{Member, MemberOptions, NodeEvent};
use crate::trust;

/// How long a client waits before it joins again if it could not; each time twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// How long it waits at most: nobody wants to wait much longer when the cause is gone.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a member hears.
type EventReceivers = (
    mpsc::UnboundedReceiver<NodeEvent>,
    mpsc::UnboundedReceiver<MembershipUpdate>,
);

/// Keeps a client a member of its cluster, for as long as somebody has the client.
pub(crate) struct ClientMembership {
    pub(crate) app: App,
    /// What it joins with.
    pub(crate) options: MemberOptions,
    /// What it is a member as; nothing, if nobody has the client any more.
    pub(crate) present: Weak<Mutex<Arc<Member>>>,
    pub(crate) rosters: watch::Sender<Roster>,
    pub(crate) admin: Arc<Mutex<AdminService>>,
}

impl ClientMembership {
    /// Runs until nobody has the client, or it has left.
    pub(crate) async fn keep(self, mut receivers: EventReceivers) {
        while self.attend(&mut receivers).await {
            let Some(joined) = self.join_again().await else { return };
            receivers = joined;
        }
    }

    /// Hears what the present member hears until it is one no longer; whether it has lost its membership.
    async fn attend(&self, (below, heard): &mut EventReceivers) -> bool {
        loop {
            tokio::select! {
                Some(below) = below.recv() => {
                    let Some(member) = self.member() else { return false };
                    if let NodeEvent::Frame { from, payload, .. } = below {
                        let roster = self.rosters.borrow().clone();
                        // Nobody asks anything of a client.
                        self.admin.lock().hear(&member.peer, &roster, from, &payload);
                    }
                }
                heard = heard.recv() => match heard {
                    Some(MembershipUpdate::Roster(roster)) => {
                        let Some(member) = self.member() else { return false };
                        self.admin.lock().meet(&member.peer, &roster);
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

    /// Joins as a new member, however often that takes; nothing if nobody has the client any more.
    async fn join_again(&self) -> Option<EventReceivers> {
        tracing::warn!("this client has lost its lease: it joins its cluster again");
        let ended = self.member()?;
        ended.peer.end();
        // Those who were asked can't answer this member any more.
        self.admin.lock().meet(&ended.peer, &Roster::default());
        let sleeper = self.options.clock.sleeper("a client that joins again");
        let mut pause = PAUSE_MIN;
        loop {
            match self.join(&ended).await {
                Ok(mut member) => {
                    let receivers = member.take_ears();
                    let member = Arc::new(member);
                    tracing::info!(node = %member.me, "this client has joined its cluster again");
                    match self.present.upgrade() {
                        Some(present) => *present.lock() = member,
                        None => {
                            member.membership.leave().await;
                            return None;
                        }
                    }
                    return Some(receivers);
                }
                Err(error) => tracing::warn!("this client could not join its cluster again, and tries on: {error:#}"),
            }
            // Nobody may want it any more.
            self.present.upgrade()?;
            sleeper.sleep_until(Some(self.options.clock.now() + pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn join(&self, ended: &Member) -> anyhow::Result<Member> {
        // Meanwhile the cluster may have got another authority.
        trust::check(&self.options.coordination, &self.options.security).await?;
        ended.join_again(&self.app, self.options.clone()).await
    }

    fn member(&self) -> Option<Arc<Member>> {
        let present = self.present.upgrade()?;
        let member = Arc::clone(&present.lock());
        Some(member)
    }
}
