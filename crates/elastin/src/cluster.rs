//! A running cluster, seen from a process that is no server: calls its actors and asks things of it.

use std::sync::Arc;
use std::time::Duration;

use elastin_actor::Client;
use elastin_cluster::{Role, Roster};
use elastin_types::{ActorId, NodeId};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::address::{ClusterAddress, Stores};
use crate::admin::{AdminError, AdminReply, AdminRequest, AdminResult, AdminService, Asker, until_arrived};
use crate::client_membership::ClientMembership;
use crate::elasticity::control::global_manager;
use crate::member::{Member, MemberOptions};
use crate::trust;
use crate::{App, ServerStatus};

/// How long an operator waits for an answer. A move may take ten seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a client waits until it knows the cluster.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection to a running cluster, for a process that hosts no actors: it finds the node of an actor, follows moves,
/// makes calls again that were not delivered (and no others) until their deadline, and its calls count as `client` in
/// policies.
///
/// It is a member of the cluster of its own kind, so that replies find it. If it loses its lease, because its process was
/// stopped or cut off for longer than that, it joins again by itself, as a new member; clients and references go on working.
/// Dropping it leaves the end of its membership to its lease, which runs out; [`Cluster::leave`] says good-bye.
pub struct Cluster {
    /// What it is a member as. Shared with the task that joins again, which ends when nobody else has it.
    present: Arc<Mutex<Arc<Member>>>,
    client: Client,
    admin: Arc<Mutex<AdminService>>,
    roster: watch::Receiver<Roster>,
}

impl Cluster {
    /// Joins the application's cluster at this address as a client with this name, which must not be in use.
    pub async fn connect(app: &App, address: &ClusterAddress, name: &str) -> anyhow::Result<Cluster> {
        let credentials = address.credentials(app.cluster_name())?;
        let Stores { coordination, state } = address.open_to_call(app.cluster_name(), &credentials).await?;
        let options = MemberOptions::new(name, Role::Client, coordination, state, credentials.security);
        Self::join(app, options).await
    }

    /// Joins as a client.
    pub(crate) async fn join(app: &App, options: MemberOptions) -> anyhow::Result<Cluster> {
        let mut member = Member::join(app, options.clone()).await?;
        if let Err(error) = trust::check(&options.coordination, &options.security).await {
            member.membership.leave().await;
            member.peer.close();
            return Err(error);
        }
        let client = member.runtime.client();
        let (rosters, mut roster) = watch::channel(Roster::default());
        let admin = Arc::new(Mutex::new(AdminService::default()));
        let receivers = member.take_ears();
        let present = Arc::new(Mutex::new(Arc::new(member)));
        let membership = ClientMembership {
            app: app.clone(),
            options,
            present: Arc::downgrade(&present),
            rosters,
            admin: Arc::clone(&admin),
        };
        tokio::spawn(membership.keep(receivers));
        let known = roster.wait_for(|roster| !roster.members.is_empty());
        tokio::time::timeout(CONNECT_TIME_MAX, known).await.map_err(|_| {
            anyhow::anyhow!("the cluster has no server that could be reached within {CONNECT_TIME_MAX:?}")
        })??;
        Ok(Cluster {
            present,
            client,
            admin,
            roster,
        })
    }

    /// Calls the cluster's actors.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The names of the servers that are there.
    pub fn server_names(&self) -> Vec<String> {
        let roster = self.roster.borrow();
        let servers = roster.members.values().filter(|record| record.role == Role::Server);
        servers.map(|record| record.name.clone()).collect()
    }

    /// How the servers are, as the global elasticity manager knows them.
    pub async fn status(&self) -> Result<Vec<ServerStatus>, AdminError> {
        let global = global_manager(&self.roster.borrow()).ok_or(AdminError::NoAnswer)?;
        match self.ask(global, AdminRequest::Status).await? {
            AdminReply::Servers(servers) => Ok(servers),
            AdminReply::Done => Err(AdminError::WrongNode),
        }
    }

    /// Moves an actor to a server, as an operator; no policy is asked.
    pub async fn move_actor(&self, actor: &ActorId, server: &str) -> Result<(), AdminError> {
        let to = self.named(server)?;
        let ask = async || {
            let view = self.member().peer.view().ok_or(AdminError::NoAnswer)?;
            let actor = actor.clone();
            self.ask(view.directory_of(&actor).node, AdminRequest::Move { actor, to })
                .await
        };
        until_arrived(ask).await.map(drop)
    }

    /// Has a server emptied, after which it leaves; returns when it is gone. The last server stays until there is another that
    /// can take over from it.
    pub async fn drain(&self, server: &str) -> Result<(), AdminError> {
        let node = self.named(server)?;
        self.ask(node, AdminRequest::Drain).await?;
        let mut roster = self.roster.clone();
        let gone = roster.wait_for(|roster| !roster.members.contains_key(&node)).await;
        gone.map(drop).map_err(|_| AdminError::NoAnswer)
    }

    /// Waits until a server of that name is there.
    pub(crate) async fn await_server(&self, server: &str, wait_max: Duration) -> anyhow::Result<()> {
        let mut roster = self.roster.clone();
        let there = roster.wait_for(|roster| roster.named(server).is_some());
        tokio::time::timeout(wait_max, there)
            .await
            .map_err(|_| anyhow::anyhow!("{server} is not known to others after {wait_max:?}"))??;
        Ok(())
    }

    /// Leaves the cluster, so that nobody waits for the lease to run out.
    pub async fn leave(self) {
        // From now on it does not join again.
        let Cluster { present, .. } = self;
        let member = Arc::clone(&present.lock());
        drop(present);
        member.membership.leave().await;
        member.peer.end();
    }

    /// What it is a member as.
    pub(crate) fn member(&self) -> Arc<Member> {
        Arc::clone(&self.present.lock())
    }

    fn named(&self, server: &str) -> Result<NodeId, AdminError> {
        let named = self.roster.borrow().named(server);
        named.ok_or_else(|| AdminError::NoSuchServer(server.to_owned()))
    }

    async fn ask(&self, node: NodeId, what: AdminRequest) -> AdminResult {
        let (answer, answered) = oneshot::channel();
        self.admin
            .lock()
            .ask_of(&self.member().peer, node, Asker::Local(answer), what);
        match tokio::time::timeout(ANSWER_TIME_MAX, answered).await {
            Ok(Ok(result)) => result,
            _ => Err(AdminError::NoAnswer),
        }
    }
}
