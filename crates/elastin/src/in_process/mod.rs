//! A cluster whose servers are all in this process, for an application's own tests.

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

/// How long a server may take to join.
const JOIN_TIME_MAX: Duration = Duration::from_secs(30);

/// How often elasticity managers decide.
const PERIOD: Duration = Duration::from_secs(1);

/// The same with [`InProcessBuilder::fake_time`].
const FAKE_PERIOD: Duration = Duration::from_secs(3600);

/// How long a server may be silent with [`InProcessBuilder::fake_time`].
const FAKE_LEASE: Duration = Duration::from_secs(3600);

/// How long a cluster may take to do what is due at one moment: far longer than it does.
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
/// assert_eq!(counter.add(0).await, Ok(3), "nothing is lost on the way");
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
    retry_limit: Duration,
}

impl InProcessBuilder {
    pub(crate) fn new(app: App) -> Self {
        Self {
            app,
            servers: 1,
            period: None,
            lease: None,
            fake_time: false,
            retry_limit: BUSY_TIME_MAX,
        }
    }

    /// Sets how many servers there are at first; one, unless it is said.
    pub fn servers(mut self, count: u32) -> Self {
        self.servers = count;
        self
    }

    /// Sets how often elasticity managers decide, unless the policy says so; a second, unless it is said.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Sets how long a server may be silent before others take over from it; six seconds, unless it is said. A test that
    /// [crashes](InProcess::crash) servers waits that long; on a busy machine a short lease may run out by itself.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Gives the cluster a time of its own, which runs as the real one does and can be moved ahead, for tests of timers,
    /// reminders, deadlines, leases and passivation: see [`InProcess::advance`]. Periods and leases are an hour long then,
    /// unless it is said: each is something that happens, and a day would have very many.
    pub fn fake_time(mut self) -> Self {
        self.fake_time = true;
        self
    }

    /// Sets how long the cluster may take, in real time, to do what is due at one moment before
    /// [`advance`](InProcess::advance) gives up; half a minute, unless it is said.
    pub fn retry_limit(mut self, retry_limit: Duration) -> Self {
        self.retry_limit = retry_limit;
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
            retry_limit: self.retry_limit,
        })
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
    /// The client's.
    tasks: Tasks,
    servers: Servers,
    /// The clock of them all, if it can be moved ahead.
    fake: Option<Clock>,
    retry_limit: Duration,
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
