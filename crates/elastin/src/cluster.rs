//! A client's connection to a running cluster: calls its actors and sends admin requests.

use std::sync::Arc;
use std::time::Duration;

use elastin_actor::Client;
use elastin_cluster::{Role, Roster};
use elastin_types::{ActorId, NodeId};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::address::{ClusterAddress, Stores};
use crate::admin::{AdminError, AdminReply, AdminRequest, AdminResult, AdminService, Requester, retry_move};
use crate::client_membership::ClientMembership;
use crate::elasticity::control::global_manager;
use crate::member::{Member, MemberOptions};
use crate::trust;
use crate::{App, ServerStatus};

/// The timeout of an operator's request: longer than the timeout of a move.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// The time that a new client waits for its first roster.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection to a running cluster, for a process that hosts no actors.
///
/// It locates actors, follows their moves, and retries calls that were not delivered (and no others) until their
/// deadline. Its calls count as `client` in policies.
///
/// It is a member of the cluster with the role of a client, so that replies find it. If it loses its lease, because its
/// process was stopped or cut off, it rejoins by itself as a new member, and its clients and references keep working.
/// After a drop its membership ends with its lease; [`Cluster::leave`] ends it at once.
pub struct Cluster {
    /// The current member. Shared with the task that rejoins, which holds it weakly.
    current: Arc<Mutex<Arc<Member>>>,
    client: Client,
    admin: Arc<Mutex<AdminService>>,
    roster: watch::Receiver<Roster>,
}

impl Cluster {
    /// Joins the application's cluster at this address as a client with this name, which must not be in use.
    pub async fn connect(app: &App, address: &ClusterAddress, name: &str) -> anyhow::Result<Cluster> {
        let credentials = address.credentials(app.cluster_name())?;
        let Stores { coordination, state } = address.open_for_client(app.cluster_name(), &credentials).await?;
        let options = MemberOptions::new(name, Role::Client, coordination, state, credentials.security);
        Self::join(app, options).await
    }

    /// Joins as a client.
    pub(crate) async fn join(app: &App, options: MemberOptions) -> anyhow::Result<Cluster> {
        let mut member = Member::join(app, options.clone()).await?;
        if let Err(error) = trust::check(&options.coordination, &options.security).await {
            member.membership.leave().await;
            member.driver.close();
            return Err(error);
        }
        let client = member.runtime.client();
        let (rosters, mut roster) = watch::channel(Roster::default());
        let admin = Arc::new(Mutex::new(AdminService::default()));
        let receivers = member.take_receivers();
        let current = Arc::new(Mutex::new(Arc::new(member)));
        let membership = ClientMembership {
            app: app.clone(),
            options,
            current: Arc::downgrade(&current),
            rosters,
            admin: Arc::clone(&admin),
        };
        tokio::spawn(membership.run(receivers));
        let known = roster.wait_for(|roster| !roster.members.is_empty());
        tokio::time::timeout(CONNECT_TIME_MAX, known)
            .await
            .map_err(|_| anyhow::anyhow!("no server of the cluster could be reached within {CONNECT_TIME_MAX:?}"))??;
        Ok(Cluster {
            current,
            client,
            admin,
            roster,
        })
    }

    /// The client that calls the cluster's actors.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The names of the current servers.
    pub fn server_names(&self) -> Vec<String> {
        let roster = self.roster.borrow();
        let servers = roster.members.values().filter(|record| record.role == Role::Server);
        servers.map(|record| record.name.clone()).collect()
    }

    /// The status of the servers, as the global elasticity manager knows it.
    pub async fn status(&self) -> Result<Vec<ServerStatus>, AdminError> {
        let global = global_manager(&self.roster.borrow()).ok_or(AdminError::NoAnswer)?;
        match self.request(global, AdminRequest::Status).await? {
            AdminReply::Servers(servers) => Ok(servers),
            AdminReply::Done => Err(AdminError::WrongNode),
        }
    }

    /// Moves an actor to a server, as an operator. Policies are not consulted.
    pub async fn move_actor(&self, actor: &ActorId, server: &str) -> Result<(), AdminError> {
        let to = self.named(server)?;
        let request = async || {
            let view = self.member().driver.view().ok_or(AdminError::NoAnswer)?;
            let actor = actor.clone();
            self.request(view.directory_of(&actor).node, AdminRequest::Move { actor, to })
                .await
        };
        retry_move(request).await.map(drop)
    }

    /// Drains a server, and returns when it has left. The last server stays until another one can take over from it.
    pub async fn drain(&self, server: &str) -> Result<(), AdminError> {
        let node = self.named(server)?;
        self.request(node, AdminRequest::Drain).await?;
        let mut roster = self.roster.clone();
        let gone = roster.wait_for(|roster| !roster.members.contains_key(&node)).await;
        gone.map(drop).map_err(|_| AdminError::NoAnswer)
    }

    /// Waits until a server of this name has joined.
    pub(crate) async fn await_server(&self, server: &str, wait_max: Duration) -> anyhow::Result<()> {
        let mut roster = self.roster.clone();
        let joined = roster.wait_for(|roster| roster.named(server).is_some());
        tokio::time::timeout(wait_max, joined)
            .await
            .map_err(|_| anyhow::anyhow!("{server} is not in the roster after {wait_max:?}"))??;
        Ok(())
    }

    /// Leaves the cluster at once, instead of letting the lease expire.
    pub async fn leave(self) {
        let Cluster { current, .. } = self;
        let member = Arc::clone(&current.lock());
        // Ends the task that would rejoin.
        drop(current);
        member.membership.leave().await;
        member.driver.end();
    }

    /// The current member.
    pub(crate) fn member(&self) -> Arc<Member> {
        Arc::clone(&self.current.lock())
    }

    fn named(&self, server: &str) -> Result<NodeId, AdminError> {
        let named = self.roster.borrow().named(server);
        named.ok_or_else(|| AdminError::NoSuchServer(server.to_owned()))
    }

    async fn request(&self, node: NodeId, request: AdminRequest) -> AdminResult {
        let (answer, answered) = oneshot::channel();
        self.admin
            .lock()
            .forward(&self.member().driver, node, Requester::Local(answer), request);
        match tokio::time::timeout(ANSWER_TIME_MAX, answered).await {
            Ok(Ok(result)) => result,
            _ => Err(AdminError::NoAnswer),
        }
    }
}
