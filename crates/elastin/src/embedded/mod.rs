//! The embedded cluster: server processes of this program on this machine, under a supervisor in this process.
//!
//! The supervisor serves coordination and state over loopback, owns the directory, runs the global elasticity manager,
//! and starts and stops servers. Nothing needs to be installed.

mod builder;
mod previous_run;
mod supervisor;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastin_actor::Client;
use elastin_cluster::{Role, Security};
use elastin_control::{Capacity, Decision};
use elastin_protocol::store::{Coordination, StateStore};
use elastin_types::ActorId;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::admin::{AdminError, AdminResult, retry_move};
use crate::member::MemberOptions;
use crate::metrics::MetricsServer;
use crate::status::{ServerStatus, Status};
use crate::{App, Cluster};

pub use builder::{EmbeddedBuilder, EmbeddedError};
use supervisor::Request;

/// The timeout of an operator's request to the supervisor.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// A running embedded cluster. Its servers end when it is dropped or shut down.
pub struct Embedded {
    app: App,
    coordination: Arc<dyn Coordination>,
    state: Arc<dyn StateStore>,
    security: Security,
    requests: mpsc::UnboundedSender<Request>,
    status: Arc<Mutex<Status>>,
    clients: Mutex<Vec<Cluster>>,
    clients_made: AtomicU64,
    // Serves the stores until it is dropped.
    stores: elastin_stores::served::Server,
    // Serves the supervisor's metrics until it is dropped.
    _metrics: Option<MetricsServer>,
    // The files of a cluster without a data directory, removed on drop.
    _temporary: Option<tempfile::TempDir>,
}

impl Embedded {
    /// A new client, connected as a member of its own. Its calls count as `client` in policies.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let number = self.clients_made.fetch_add(1, Ordering::Relaxed) + 1;
        let options = MemberOptions::new(
            format!("client-{number}"),
            Role::Client,
            Arc::clone(&self.coordination),
            Arc::clone(&self.state),
            self.security.clone(),
        );
        let cluster = Cluster::join(&self.app, options).await?;
        let client = cluster.client().clone();
        self.clients.lock().push(cluster);
        Ok(client)
    }

    /// The address at which operators and clients of other processes join. They also need the cluster's secret, which
    /// is in the file `secret` of its data directory.
    pub fn address(&self) -> SocketAddr {
        self.stores.address()
    }

    /// The servers, as they last reported.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.status.lock().servers()
    }

    /// All decisions so far, oldest first, each in its current state.
    pub fn decisions(&self) -> Vec<Decision> {
        self.status.lock().decisions()
    }

    /// The demand for servers and their supply, period by period, as input of elasticity metrics.
    pub fn capacities(&self) -> Vec<Capacity> {
        self.status.lock().capacities()
    }

    /// The application that the cluster runs.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// A decision in one line, with the servers' names.
    pub fn explain(&self, decision: &Decision) -> String {
        self.status.lock().with_names(&decision.explain(self.app.schema()))
    }

    /// Moves an actor to a server, as an operator. Policies are not consulted.
    pub async fn move_actor(&self, actor: &ActorId, server: &str) -> Result<(), AdminError> {
        retry_move(|| self.request_move(actor, server)).await.map(drop)
    }

    async fn request_move(&self, actor: &ActorId, server: &str) -> AdminResult {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Move {
            actor: actor.clone(),
            server: server.into(),
            answer,
        });
        match tokio::time::timeout(REQUEST_TIME_MAX, answered).await {
            Ok(Ok(result)) => result,
            _ => Err(AdminError::NoAnswer),
        }
    }

    /// Starts one more server and waits until it has joined. Returns its name.
    pub async fn add_server(&self) -> anyhow::Result<String> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Add { answer });
        tokio::time::timeout(REQUEST_TIME_MAX, answered)
            .await??
            .map_err(Into::into)
    }

    /// Drains a server, which ends then.
    pub fn drain(&self, server: &str) {
        self.send(Request::Drain { server: server.into() });
    }

    /// Kills a server's process, as a crash would. Returns whether there was such a server.
    pub async fn kill(&self, server: &str) -> bool {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Kill {
            server: server.into(),
            answer,
        });
        answered.await.unwrap_or(false)
    }

    /// The operating system's id of a server's process.
    pub async fn process_id(&self, server: &str) -> Option<u32> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::ProcessId {
            server: server.into(),
            answer,
        });
        answered.await.ok().flatten()
    }

    /// Stops all servers and ends the cluster.
    pub async fn shutdown(self) {
        let clients = std::mem::take(&mut *self.clients.lock());
        for client in clients {
            client.leave().await;
        }
        let (answer, answered) = oneshot::channel();
        self.send(Request::Shutdown { answer });
        let _ = answered.await;
    }

    fn send(&self, request: Request) {
        // The supervisor outlives this handle, unless it has lost its lease: then the callers' answers fail.
        let _ = self.requests.send(request);
    }
}
