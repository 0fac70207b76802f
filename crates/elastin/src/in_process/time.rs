//! Advances the virtual time of a whole cluster.
//!
//! ```text
//!   quiescent ──► the clock skips to the next due time ──► sleepers wake, run, send, save …
//!        ▲                                                              │
//!        └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! So renewals, timers, deadlines and reminders happen one after the other, in the order of their times, and all
//! effects of one are complete before the next.
//!
//! The cluster is quiescent if every sleeper of the clock is asleep, no turn can run, and every sent byte has been
//! received. These are observed one after the other, so a second observation must find the same, with no progress in
//! between (the four-counter method of Mattern, "Algorithms for distributed termination detection", 1987).

use std::time::{Duration, Instant};

use elastin_clock::{Clock, SleepState};
use elastin_cluster::NodeDriver;
use elastin_runtime::Runtime;
use elastin_types::Time;

use super::InProcess;
use super::tasks::Tasks;

/// The number of observations without a sleep between them. After that some task takes long, and polling may slow down.
const QUICK_POLLS: u32 = 200;

/// The sleep between later observations.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The range of a virtual clock, in years.
const END_YEARS: u64 = Clock::SKIP_END.0 / (365 * 24 * 3600 * 1_000_000_000);

/// The reason why the time of a cluster was not advanced, or not to the end.
#[derive(Debug, thiserror::Error)]
pub enum TimeError {
    /// The cluster has no virtual clock.
    #[error("the cluster runs on real time: call `fake_time()` before `start()`")]
    Real,
    /// The clock's range is exceeded. Time was not advanced.
    #[error("the cluster's time can't be advanced by {by:?}: it ends {END_YEARS} years after the cluster's start")]
    TooFar {
        /// The requested advance.
        by: Duration,
    },
    /// A task did not complete the work that was due. Time has stopped before the next due time.
    #[error("{task} is still busy after {waited:?}")]
    Busy {
        /// The busy task.
        task: String,
        /// The timeout, in real time.
        waited: Duration,
    },
    /// A server has ended unexpectedly.
    #[error("{server} has ended: {reason}")]
    Ended {
        /// The server.
        server: String,
        /// The cause.
        reason: String,
    },
}

/// A member whose quiescence is observed.
struct Observed<'a> {
    name: &'a str,
    tasks: &'a Tasks,
    runtime: Runtime,
    driver: NodeDriver,
}

/// Monotonic counters of all activity: if two observations agree, nothing has happened in between.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    sleeps: u64,
    turns: u64,
    bytes: u64,
}

impl InProcess {
    /// Advances the time of the whole cluster, and returns when everything that is due by then is complete, with all
    /// its effects: timers, reminders, deadlines, passivation and the decisions at the end of periods. Leases are
    /// renewed meanwhile. It needs [`fake_time`](super::InProcessBuilder::fake_time).
    ///
    /// The real time that this takes depends on the work that is due, not on the time that passes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use elastin::prelude::*;
    /// # #[derive(Actor, Serialize, Deserialize, Default)]
    /// # struct Greenhouse { watered: u32 }
    /// #[handlers]
    /// impl Greenhouse {
    ///     fn plant(&mut self, ctx: &Ctx) {
    ///         let day = Duration::from_secs(24 * 3600);
    ///         ctx.every(day, ctx.me::<Greenhouse>().water());
    ///     }
    ///     fn water(&mut self) {
    ///         self.watered += 1;
    ///     }
    ///     fn watered(&self) -> u32 {
    ///         self.watered
    ///     }
    /// }
    /// # #[tokio::main]
    /// # async fn main() -> anyhow::Result<()> {
    /// let app = Elastin::app().actor::<Greenhouse>();
    /// let mut cluster = app.in_process().servers(2).fake_time().start().await?;
    /// let greenhouse = cluster.client().actor::<Greenhouse>("orchids");
    /// greenhouse.plant().await?;
    /// cluster.advance(Duration::from_secs(3 * 24 * 3600)).await?;
    /// assert_eq!(greenhouse.watered().await, Ok(3));
    /// # cluster.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn advance(&mut self, by: Duration) -> Result<(), TimeError> {
        let clock = self.fake.clone().ok_or(TimeError::Real)?;
        let end = clock.now() + by;
        if end > Clock::SKIP_END {
            return Err(TimeError::TooFar { by });
        }
        loop {
            let next = self.quiesce(&clock).await?;
            if next > end {
                break;
            }
            clock.skip_to(next);
        }
        clock.skip_to(end);
        self.quiesce(&clock).await.map(drop)
    }

    /// Waits until the cluster is quiescent. Returns the next due time.
    async fn quiesce(&mut self, clock: &Clock) -> Result<Time, TimeError> {
        let began = Instant::now();
        let (mut before, mut polls) = (None, 0);
        loop {
            self.check_servers().await?;
            let members = self.observed_members();
            // The connection readers come first, because they wake tasks. All members of a process share them.
            if let Some(member) = members.first() {
                member.driver.caught_up().await;
            }
            let settling: Vec<_> = members.iter().map(|member| member.tasks.settle()).collect();
            for settled in settling {
                let _ = settled.await;
            }
            match observe(clock, &members) {
                Ok((next, progress)) if before == Some(progress) => return Ok(next),
                Ok((_, progress)) => before = Some(progress),
                Err(task) if began.elapsed() > self.settle_timeout => {
                    let waited = self.settle_timeout;
                    return Err(TimeError::Busy { task, waited });
                }
                Err(_) => before = None,
            }
            polls += 1;
            if polls > QUICK_POLLS {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Removes servers that have left, as a policy may decide. A server that has ended otherwise is an error.
    async fn check_servers(&mut self) -> Result<(), TimeError> {
        let running = &mut self.servers.running;
        let ended = running.iter().find(|(_, running)| running.ended.is_finished());
        let Some(server) = ended.map(|(name, _)| name.clone()) else {
            return Ok(());
        };
        let Some(mut running) = running.remove(&server) else {
            return Ok(());
        };
        let reason = match (&mut running.ended).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Err(TimeError::Ended { server, reason })
    }

    fn observed_members(&self) -> Vec<Observed<'_>> {
        let servers = self.servers.running.iter().map(|(name, running)| Observed {
            name,
            tasks: &running.tokio,
            runtime: running.runtime.clone(),
            driver: running.driver.clone(),
        });
        let client = self.cluster.member();
        let client = Observed {
            name: "the client",
            tasks: &self.tasks,
            runtime: client.runtime.clone(),
            driver: client.driver.clone(),
        };
        servers.chain([client]).collect()
    }
}

/// The next due time and the progress so far, or the name of a task that is busy.
fn observe(clock: &Clock, members: &[Observed<'_>]) -> Result<(Time, Progress), String> {
    let (next, sleeps) = match clock.sleep_state() {
        SleepState::Asleep { until, sleep_count } => (until, sleep_count),
        SleepState::Awake { task } => return Err(task),
    };
    let mut progress = Progress {
        sleeps,
        turns: 0,
        bytes: 0,
    };
    for member in members {
        if !member.runtime.is_still() {
            return Err(format!("an actor of {}", member.name));
        }
        if member.driver.measures().events_queued > 0 {
            return Err(format!("the protocol of {}", member.name));
        }
        progress.turns += member.runtime.stats().turns;
        for other in members.iter().filter(|other| other.driver.me() != member.driver.me()) {
            let sent_bytes = member.driver.traffic_with(other.driver.me()).sent_bytes;
            if sent_bytes != other.driver.traffic_with(member.driver.me()).received_bytes {
                return Err(format!("the connection from {} to {}", member.name, other.name));
            }
            progress.bytes += sent_bytes;
        }
    }
    Ok((next, progress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Elastin;
    use crate::in_process::end_lease::end_lease;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_ends_during_an_advance_is_named() {
        let builder = Elastin::app().in_process().servers(2).fake_time();
        let mut cluster = builder.start().await.unwrap();
        end_lease(&cluster, "server-2").await;
        let error = cluster.advance(HOUR).await.expect_err("a server has lost its lease");
        assert!(matches!(error, TimeError::Ended { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "server-2 has ended: this server is no longer a member of its cluster"
        );
        // The other server takes over.
        cluster.advance(2 * HOUR).await.unwrap();
        assert_eq!(cluster.server_names(), ["server-1"]);
        cluster.shutdown().await;
    }
}
