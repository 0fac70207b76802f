//! A cluster whose servers are all in this process, for an application's own tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_actor::Client;
use elastin_cluster::{Peer, Planted, Security};
use elastin_protocol::MoveError;
use elastin_runtime::Runtime;
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_types::ActorId;
use tokio::sync::oneshot;

use crate::address::Stores;
use crate::admin::AdminError;
use crate::member::{LEASE_TTL, LOOPBACK};
use crate::node::{self, NodeOptions, Place};
use crate::{App, Cluster, ServerStatus};

/// How long a server may take to join.
const JOIN_TIME_MAX: Duration = Duration::from_secs(30);

/// A cluster to be started in this process.
///
/// ```
/// # use elastin::prelude::*;
/// # #[derive(Actor, Serialize, Deserialize, Default)]
/// # struct Counter { value: u64 }
/// # #[handlers]
/// # impl Counter {
/// #     fn add(&mut self, amount: u64) -> u64 { self.value += amount; self.value }
/// # }
/// # #[tokio::main]
/// # async fn main() -> anyhow::Result<()> {
/// let app = Elastin::app().actor::<Counter>();
/// let cluster = app.in_process().servers(2).start().await?;
/// let counter = cluster.client().actor::<Counter>("visits");
/// assert_eq!(counter.add(1).await, Ok(1));
/// for server in cluster.server_names() {
///     cluster.move_actor(counter.id(), &server).await?;
///     counter.add(1).await?;
/// }
/// assert_eq!(counter.add(0).await, Ok(3), "nothing is lost on the way");
/// cluster.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `start`"]
pub struct InProcessBuilder {
    app: App,
    servers: u32,
    period: Duration,
    lease: Duration,
}

impl InProcessBuilder {
    pub(crate) fn new(app: App) -> Self {
        Self {
            app,
            servers: 1,
            period: Duration::from_secs(1),
            lease: LEASE_TTL,
        }
    }

    /// Sets how many servers there are at first; one, unless it is said.
    pub fn servers(mut self, count: u32) -> Self {
        self.servers = count;
        self
    }

    /// Sets how often elasticity managers decide, unless the policy says so; a second, unless it is said.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Sets how long a server may be silent before it counts as dead; three seconds, unless it is said. A test that
    /// [crashes](InProcess::crash) servers waits that long; on a busy machine a short lease may run out by itself.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Starts the servers and connects to them.
    pub async fn start(self) -> anyhow::Result<InProcess> {
        anyhow::ensure!(self.servers > 0, "a cluster has at least one server");
        self.app.check()?;
        let stores = Stores {
            coordination: Arc::new(MemoryCoordination::start()),
            state: Arc::new(MemoryState::start()),
        };
        let mut servers = Servers {
            app: self.app.clone(),
            stores: stores.clone(),
            period: self.period,
            lease: self.lease,
            running: BTreeMap::new(),
            started: 0,
        };
        for _ in 0..self.servers {
            servers.start().await?;
        }
        let cluster = Cluster::join(&self.app, stores, Security::Trusting, "test").await?;
        Ok(InProcess { cluster, servers })
    }
}

/// A cluster whose servers are all in this process. Each has its own threads, its own part of the directory and its own
/// connections over loopback, as if it were a process of its own; what they agree on and what actors save is in memory, and
/// gone with the cluster. Nothing has to be installed.
///
/// What is global to a process is common to them: static variables of the application, and the processor and memory that
/// policies see.
pub struct InProcess {
    cluster: Cluster,
    servers: Servers,
}

struct Servers {
    app: App,
    stores: Stores,
    period: Duration,
    lease: Duration,
    running: BTreeMap<String, Running>,
    /// How many there have been.
    started: u32,
}

/// A server at work.
struct Running {
    /// Its threads for everything but turns; taken when it ends.
    tokio: Option<tokio::runtime::Runtime>,
    runtime: Runtime,
    peer: Peer,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl InProcess {
    /// Calls the cluster's actors, as a client that is no server.
    pub fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// The names of the servers that are there: `server-1` and so on.
    pub fn server_names(&self) -> Vec<String> {
        self.cluster.server_names()
    }

    /// How the servers are, as the global elasticity manager knows them.
    pub async fn status(&self) -> Result<Vec<ServerStatus>, AdminError> {
        self.cluster.status().await
    }

    /// Moves an actor to a server, unless it is there; no policy is asked.
    pub async fn move_actor(&self, actor: &ActorId, server: &str) -> Result<(), AdminError> {
        match self.cluster.move_actor(actor, server).await {
            Err(AdminError::Move(MoveError::AlreadyThere)) => Ok(()),
            moved => moved,
        }
    }

    /// Adds a server; gives its name.
    pub async fn add_server(&mut self) -> anyhow::Result<String> {
        let name = self.servers.start().await?;
        self.cluster.await_server(&name, JOIN_TIME_MAX).await?;
        Ok(name)
    }

    /// Has a server emptied, after which it leaves; returns when it is gone.
    pub async fn drain(&mut self, server: &str) -> anyhow::Result<()> {
        self.cluster.drain(server).await?;
        if let Some(mut running) = self.servers.running.remove(server) {
            (&mut running.ended).await??;
        }
        Ok(())
    }

    /// Ends a server as if its process was killed: from one moment to the next it runs nothing, answers nothing and says
    /// good-bye to nobody. The others go on without it when its lease has run out. Says whether there was one of that name.
    pub async fn crash(&mut self, server: &str) -> bool {
        match self.servers.running.remove(server) {
            Some(running) => {
                running.end().await;
                true
            }
            None => false,
        }
    }

    /// Ends the cluster, with all that its actors have saved.
    pub async fn shutdown(self) {
        let InProcess { cluster, mut servers } = self;
        cluster.leave().await;
        for (_, running) in std::mem::take(&mut servers.running) {
            running.end().await;
        }
    }
}

impl Servers {
    /// Starts a server and waits until it has joined; gives its name.
    async fn start(&mut self) -> anyhow::Result<String> {
        self.started += 1;
        let name = format!("server-{}", self.started);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(&name)
            .enable_all()
            .build()?;
        let (joining, joined) = oneshot::channel();
        let place = Place {
            stores: self.stores.clone(),
            security: Security::Trusting,
            supervised: false,
        };
        let options = NodeOptions {
            name: name.clone(),
            cpu_share: None,
            listen: LOOPBACK,
            advertise: None,
            lease_ttl: self.lease,
            period: self.period,
            planted: Planted::default(),
            net_mbit: None,
            metrics: None,
        };
        let hand_over = move |runtime: &Runtime, peer: &Peer| {
            let _ = joining.send((runtime.clone(), peer.clone()));
        };
        let never = std::future::pending;
        let server = node::serve(self.app.clone(), place, options, never(), never(), hand_over);
        let ended = tokio.spawn(server);
        match tokio::time::timeout(JOIN_TIME_MAX, joined).await {
            Ok(Ok((runtime, peer))) => {
                let running = Running {
                    tokio: Some(tokio),
                    runtime,
                    peer,
                    ended,
                };
                self.running.insert(name.clone(), running);
                Ok(name)
            }
            failed => {
                let why = if failed.is_ok() { ended.await?.err() } else { None };
                tokio.shutdown_background();
                Err(why.unwrap_or_else(|| anyhow::anyhow!("{name} did not join within {JOIN_TIME_MAX:?}")))
            }
        }
    }
}

impl Running {
    /// Ends it without a word to anybody.
    async fn end(mut self) {
        self.runtime.fence(true);
        self.peer.close();
        self.ended.abort();
        self.stop_threads();
        self.runtime.shutdown(Duration::ZERO).await;
    }

    fn stop_threads(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.runtime.fence(true);
        self.stop_threads();
    }
}
