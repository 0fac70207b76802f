//! An actor that shows which activation of it runs, and the load that makes it leave traces continuously.
//!
//! ```text
//!   activation 1 ── turn 1, 2, 3 … ──┐
//!                                    ├──► a file: each line shows more than those before it
//!   activation 2 ── turn 1, 2 … ─────┘
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use elastin::Client;
use elastin::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::History;

/// Number of witnesses that [`Testimony`] and the load observe, by their keys from 0.
pub const WITNESSES: u64 = 8;
/// The interval of a witness's own traces, in milliseconds.
const TICK_MS: u64 = 20;
/// The interval of requests for traces: a new activation has no timer yet.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The observer of a trace file, as histories name it.
const THE_FILE: &str = "the file";

/// Evidence of one turn of a witness. A turn of a later activation shows more, and so does a later turn of the same
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Observation {
    /// When the activation began, in nanoseconds on the machine's monotonic clock.
    pub since_ns: u64,
    /// The number of the turn within its activation, from 1.
    pub turn: u64,
}

/// Shows which activation of it runs. Its state is in memory only: moves carry it along, a crash ends it.
#[derive(Actor, Serialize, Deserialize)]
pub struct Witness {
    observation: Observation,
    /// Whether a timer of this activation leaves traces. Moves do not carry timers along.
    #[serde(skip)]
    ticks: bool,
}

impl Default for Witness {
    fn default() -> Self {
        let since_ns = monotonic_ns();
        let observation = Observation { since_ns, turn: 0 };
        Self {
            observation,
            ticks: false,
        }
    }
}

#[handlers]
impl Witness {
    /// Shows which activation answers.
    async fn observe(&mut self) -> Observation {
        self.show()
    }

    /// Shows which activation answers, and leaves a trace of it in a file.
    async fn testify(&mut self, ctx: &Ctx, file: String) -> Result<Observation, String> {
        let began_ns = monotonic_ns();
        let observation = self.show();
        let line = format!(
            "{began_ns} {} {} {}\n",
            ctx.key(),
            observation.since_ns,
            observation.turn
        );
        let file = OpenOptions::new().append(true).create(true).open(file);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map(|()| observation).map_err(|error| error.to_string())
    }

    /// Leaves a trace after a delay, unless the activation ends before.
    async fn testify_later(&mut self, ctx: &Ctx, file: String, after_ms: u64) {
        ctx.after(Duration::from_millis(after_ms), ctx.me::<Witness>().testify(file));
    }

    /// Leaves a trace, and starts a timer that leaves more until the activation ends.
    async fn keep_testifying(&mut self, ctx: &Ctx, file: String) -> Result<Observation, String> {
        if !self.ticks {
            self.ticks = true;
            let me = ctx.me::<Witness>();
            ctx.every(Duration::from_millis(TICK_MS), me.testify(file.clone()));
        }
        self.testify(ctx, file).await
    }
}

/// The machine's monotonic clock, which all processes share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Witness {
    fn show(&mut self) -> Observation {
        self.observation.turn += 1;
        self.observation
    }
}

/// Has all witnesses leave traces in one file, by their own timers and on request: every turn is seen,
/// whether or not a caller gets its reply.
pub struct Testimony {
    directory: TempDir,
    asking: Option<JoinHandle<()>>,
}

impl Testimony {
    /// Starts to request traces.
    pub fn start(client: &Client) -> std::io::Result<Testimony> {
        let mut testimony = Self::on_request()?;
        testimony.asking = Some(tokio::spawn(ask(client.clone(), testimony.file())));
        Ok(testimony)
    }

    /// Starts without timers: witnesses leave traces only on request.
    pub fn on_request() -> std::io::Result<Testimony> {
        let directory = tempfile::tempdir()?;
        Ok(Testimony {
            directory,
            asking: None,
        })
    }

    /// The file of the traces.
    pub fn file(&self) -> String {
        self.path().display().to_string()
    }

    /// The number of traces.
    pub fn count(&self) -> usize {
        self.traces().lines().count()
    }

    /// The observations in the traces, for a history. They are ordered by the beginning of their turns: a process may be stopped
    /// in the middle of a turn, which then ends after turns of a later activation.
    ///
    /// # Panics
    /// If a trace can't be read.
    pub fn end(self, history: &mut History) {
        let trace = |line: &str| {
            let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
            let [began_ns, witness, since_ns, turn] = numbers[..] else {
                panic!("`{line}` is no trace");
            };
            (began_ns, witness, Observation { since_ns, turn })
        };
        let mut traces: Vec<_> = self.traces().lines().map(trace).collect();
        traces.sort_by_key(|(began_ns, ..)| *began_ns);
        for (_, witness, observation) in traces {
            history.saw(witness, THE_FILE, observation);
        }
    }

    fn traces(&self) -> String {
        // Before the first one there is no file.
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("traces")
    }
}

impl Drop for Testimony {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

async fn ask(client: Client, file: String) {
    loop {
        for witness in 0..WITNESSES {
            let witness = client.actor::<Witness>(witness);
            // A witness that can't be reached now is asked the next time.
            let _ = witness.keep_testifying(file.clone()).tell().await;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}
