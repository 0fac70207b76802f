//! Moving the time of a whole cluster ahead.
//!
//! ```text
//!   all is quiet ──► the clock goes to when the next thing is due ──► somebody wakes up, does it, sends, saves …
//!        ▲                                                                             │
//!        └─────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! So keep-alives, timers, deadlines and reminders happen one after the other, in the order of their times, and everything that
//! comes of one has happened before the next.
//!
//! It is quiet if nobody is awake who sleeps on the clock, no turn can go on, and everything that was sent has arrived. These
//! are looked at one after the other, so it counts only if a second look finds the same and nothing has happened in between (the
//! four counters of Mattern, "Algorithms for distributed termination detection", 1987).

use std::time::{Duration, Instant};

use elastin_clock::{Clock, SleepState};
use elastin_cluster::NodeDriver;
use elastin_runtime::Runtime;
use elastin_types::Time;

use super::InProcess;
use super::tasks::Tasks;

/// After so many polls somebody takes long, and there is time for a pause.
const QUICK_POLLS: u32 = 200;

/// That pause.
const PAUSE: Duration = Duration::from_millis(1);

/// After how many years a clock can't be moved ahead any more.
const END_YEARS: u64 = Clock::SKIP_END.0 / (365 * 24 * 3600 * 1_000_000_000);

/// Why the time of a cluster was not moved ahead, or not as far as it should be.
#[derive(Debug, thiserror::Error)]
pub enum TimeError {
    /// It is the real one.
    #[error("the cluster's time is the real one: `fake_time()` before `start()` gives it one that can be moved ahead")]
    Real,
    /// It does not go so far. It was not moved.
    #[error("the cluster's time can't be moved ahead by {by:?}: it ends {END_YEARS} years after the cluster's start")]
    TooFar {
        /// How far it should be moved.
        by: Duration,
    },
    /// Somebody does not get done with what is due. Time stands before what is due next.
    #[error("{task} still has something to do after {waited:?}")]
    Busy {
        /// Who it is.
        task: String,
        /// How long was waited for it, in real time.
        waited: Duration,
    },
    /// A server has ended on the way, though nobody wanted it to.
    #[error("{server} has ended: {reason}")]
    Ended {
        /// Which one.
        server: String,
        /// Why.
        reason: String,
    },
}

/// A member, as far as it has to be quiet.
struct Part<'a> {
    name: &'a str,
    tasks: &'a Tasks,
    runtime: Runtime,
    driver: NodeDriver,
}

/// What has happened so far: if it is the same in two polls, nothing has happened in between.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Happened {
    naps: u64,
    turns: u64,
    bytes: u64,
}

impl InProcess {
    /// Moves the time of the whole cluster ahead, and returns when everything has happened that happens in that time: timers and
    /// reminders, deadlines, passivation, what policies decide at the end of periods, and whatever comes of all that. Leases
    /// are kept alive on the way. It needs [`fake_time`](super::InProcessBuilder::fake_time).
    ///
    /// This takes about as long as it takes to do these things: less than a second for a day in which little happens.
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
            let next = self.until_quiet(&clock).await?;
            if next > end {
                break;
            }
            clock.skip_to(next);
        }
        clock.skip_to(end);
        self.until_quiet(&clock).await.map(drop)
    }

    /// Waits until all is quiet; when the next thing is due.
    async fn until_quiet(&mut self, clock: &Clock) -> Result<Time, TimeError> {
        let began = Instant::now();
        let (mut before, mut polls) = (None, 0);
        loop {
            self.check_servers().await?;
            let parts = self.parts();
            // First those who read, of which the tasks hear; they read for all members of the process.
            if let Some(part) = parts.first() {
                part.driver.caught_up().await;
            }
            let lines: Vec<_> = parts.iter().map(|part| part.tasks.last_in_line()).collect();
            for last_in_line in lines {
                let _ = last_in_line.await;
            }
            match look(clock, &parts) {
                Ok((next, happened)) if before == Some(happened) => return Ok(next),
                Ok((_, happened)) => before = Some(happened),
                Err(task) if began.elapsed() > self.retry_limit => {
                    let waited = self.retry_limit;
                    return Err(TimeError::Busy { task, waited });
                }
                Err(_) => before = None,
            }
            polls += 1;
            if polls > QUICK_POLLS {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Forgets servers that have left, because a policy wanted it; a server that has ended otherwise is an error.
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

    fn parts(&self) -> Vec<Part<'_>> {
        let servers = self.servers.running.iter().map(|(name, running)| Part {
            name,
            tasks: &running.tokio,
            runtime: running.runtime.clone(),
            driver: running.driver.clone(),
        });
        let client = self.cluster.member();
        let client = Part {
            name: "the client",
            tasks: &self.tasks,
            runtime: client.runtime.clone(),
            driver: client.driver.clone(),
        };
        servers.chain([client]).collect()
    }
}

/// When the next thing is due, and what has happened so far; or who is not quiet.
fn look(clock: &Clock, parts: &[Part<'_>]) -> Result<(Time, Happened), String> {
    let (next, naps) = match clock.sleep_state() {
        SleepState::Asleep { until, naps } => (until, naps),
        SleepState::Awake { task } => return Err(task),
    };
    let mut happened = Happened {
        naps,
        turns: 0,
        bytes: 0,
    };
    for part in parts {
        if !part.runtime.is_still() {
            return Err(format!("an actor of {}", part.name));
        }
        if part.driver.measures().events_queued > 0 {
            return Err(format!("the protocol of {}", part.name));
        }
        happened.turns += part.runtime.stats().turns;
        for other in parts.iter().filter(|other| other.driver.me() != part.driver.me()) {
            let sent_bytes = part.driver.traffic_with(other.driver.me()).sent_bytes;
            if sent_bytes != other.driver.traffic_with(part.driver.me()).received_bytes {
                return Err(format!("what {} has sent to {}", part.name, other.name));
            }
            happened.bytes += sent_bytes;
        }
    }
    Ok((next, happened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Elastin;
    use crate::in_process::end_lease::end_lease;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_ends_on_the_way_is_named() {
        let builder = Elastin::app().in_process().servers(2).fake_time();
        let mut cluster = builder.start().await.unwrap();
        end_lease(&cluster, "server-2").await;
        let error = cluster.advance(HOUR).await.expect_err("a server has lost its lease");
        assert!(matches!(error, TimeError::Ended { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "server-2 has ended: this server is no longer a member of its cluster"
        );
        // The rest goes on without it.
        cluster.advance(2 * HOUR).await.unwrap();
        assert_eq!(cluster.server_names(), ["server-1"]);
        cluster.shutdown().await;
    }
}
