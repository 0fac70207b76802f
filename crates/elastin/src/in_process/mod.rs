//! A cluster inside one process, for an application's own tests.

#[cfg(test)]
mod end_lease;
#[cfg(test)]
mod evicted_client_tests;
mod servers;
#[cfg(test)]
mod taken_name_tests;
mod tasks;
mod time;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastin_actor::Client;
use elastin_clock::Clock;
use elastin_cluster::{Role, Security};
use elastin_protocol::MoveError;
use elastin_stores::memory::{MemoryCoordination, MemoryState};
use elastin_types::ActorId;

use crate::address::Stores;
use crate::admin::AdminError;
use crate::member::{LEASE, MemberOptions, ttl_of};
use crate::{App, Cluster, ServerStatus};
use servers::Servers;
use tasks::Tasks;

pub use time::TimeError;

/// The time in which a server must join.
const JOIN_TIME_MAX: Duration = Duration::from_secs(30);

/// The default elasticity period.
const PERIOD: Duration = Duration::from_secs(1);

/// The same with [`InProcessBuilder::fake_time`].
const FAKE_PERIOD: Duration = Duration::from_secs(3600);

/// The lease with [`InProcessBuilder::fake_time`].
const FAKE_LEASE: Duration = Duration::from_secs(3600);

/// The default of [`InProcessBuilder::settle_timeout`]: far longer than a cluster takes.
const BUSY_TIME_MAX: Duration = Duration::from_secs(30);

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
/// assert_eq!(counter.add(0).await, Ok(3), "moves lose nothing");
/// cluster.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `start`"]
pub struct InProcessBuilder {
    app: App,
    servers: u32,
    period: Option<Duration>,
    lease: Option<Duration>,
    fake_time: bool,
    settle_timeout: Duration,
}

impl InProcessBuilder {
    pub(crate) fn new(app: App) -> Self {
        Self {
            app,
            servers: 1,
            period: None,
            lease: None,
            fake_time: false,
            settle_timeout: BUSY_TIME_MAX,
        }
    }

    /// Sets the initial number of servers; 1 by default.
    pub fn servers(mut self, count: u32) -> Self {
        self.servers = count;
        self
    }

    /// Sets the elasticity period, unless the policy sets one; a second by default.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Sets the time without a renewal after which others take over from a server; six seconds by default. A test that
    /// [crashes](InProcess::crash) servers waits that long. On a busy machine a short lease may expire by itself.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Gives the cluster a virtual clock, which runs like the real one and can be advanced, for tests of timers,
    /// reminders, deadlines, leases and passivation: see [`InProcess::advance`]. Periods and leases are an hour long
    /// then by default, because every one of them is work that `advance` has to do.
    pub fn fake_time(mut self) -> Self {
        self.fake_time = true;
        self
    }

    /// Sets how long the cluster may take, in real time, to complete the work that is due at one instant before
    /// [`advance`](InProcess::advance) fails; 30 seconds by default.
    pub fn settle_timeout(mut self, settle_timeout: Duration) -> Self {
        self.settle_timeout = settle_timeout;
        self
    }

    /// Starts the servers and connects to them.
    pub async fn start(self) -> anyhow::Result<InProcess> {
        anyhow::ensure!(self.servers > 0, "a cluster has at least one server");
        self.app.check()?;
        let (clock, period, lease) = match self.fake_time {
            true => (Clock::start_skipping(), FAKE_PERIOD, FAKE_LEASE),
            false => (Clock::start(), PERIOD, LEASE),
        };
        let lease_ttl = ttl_of(self.lease.unwrap_or(lease));
        let stores = Stores {
            coordination: Arc::new(MemoryCoordination::start_on(clock.clone())),
            state: Arc::new(MemoryState::start_on(clock.clone())),
        };
        let mut servers = Servers {
            app: self.app.clone(),
            stores: stores.clone(),
            period: self.period.unwrap_or(period),
            lease_ttl,
            clock: clock.clone(),
            running: BTreeMap::new(),
            started: 0,
        };
        for _ in 0..self.servers {
            servers.start().await?;
        }
        let tasks = Tasks::start("client")?;
        let Stores { coordination, state } = stores;
        let client = MemberOptions {
            lease_ttl,
            clock: clock.of("the client"),
            ..MemberOptions::new("test", Role::Client, coordination, state, Security::Trusting)
        };
        let app = self.app;
        let cluster = tasks.handle().spawn(async move { Cluster::join(&app, client).await });
        Ok(InProcess {
            cluster: cluster.await??,
            tasks,
            servers,
            fake: self.fake_time.then_some(clock),
            settle_timeout: self.settle_timeout,
        })
    }
}

/// A cluster inside one process. Each server has its own threads, directory slots and loopback connections, as if it
/// were a process of its own. Coordination and saved state are in memory, and end with the cluster. Nothing needs to be
/// installed.
///
/// The servers share everything that is global to a process: the application's static variables, and the CPU and memory
/// use that policies see.
pub struct InProcess {
    cluster: Cluster,
    /// The client's thread.
    tasks: Tasks,
    servers: Servers,
    /// The cluster's clock, if it is a virtual one.
    fake: Option<Clock>,
    settle_timeout: Duration,
}

impl InProcess {
    /// The client that calls the cluster's actors.
    pub fn client(&self) -> &Client {
        self.cluster.client()
    }

    /// The names of the current servers: `server-1` and so on.
    pub fn server_names(&self) -> Vec<String> {
        self.cluster.server_names()
    }

    /// The status of the servers, as the global elasticity manager knows it.
    pub async fn status(&self) -> Result<Vec<ServerStatus>, AdminError> {
        self.cluster.status().await
    }

    /// Moves an actor to a server, unless it is there already. Policies are not consulted.
    pub async fn move_actor(&self, actor: &ActorId, server: &str) -> Result<(), AdminError> {
        match self.cluster.move_actor(actor, server).await {
            Err(AdminError::Move(MoveError::AlreadyThere)) => Ok(()),
            moved => moved,
        }
    }

    /// Adds a server and returns its name.
    pub async fn add_server(&mut self) -> anyhow::Result<String> {
        let name = self.servers.start().await?;
        self.cluster.await_server(&name, JOIN_TIME_MAX).await?;
        Ok(name)
    }

    /// Drains a server, and returns when it has left.
    pub async fn drain(&mut self, server: &str) -> anyhow::Result<()> {
        self.cluster.drain(server).await?;
        if let Some(mut running) = self.servers.running.remove(server) {
            (&mut running.ended).await??;
        }
        Ok(())
    }

    /// Stops a server as if its process was killed: it neither drains nor leaves, and the others take over once its
    /// lease has expired. Returns whether there was such a server.
    pub async fn crash(&mut self, server: &str) -> bool {
        match self.servers.running.remove(server) {
            Some(running) => {
                running.end().await;
                true
            }
            None => false,
        }
    }

    /// Ends the cluster and discards its saved state.
    pub async fn shutdown(self) {
        let InProcess {
            cluster,
            tasks,
            mut servers,
            ..
        } = self;
        cluster.leave().await;
        drop(tasks);
        for (_, running) in std::mem::take(&mut servers.running) {
            running.end().await;
        }
    }
}
