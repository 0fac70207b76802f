//! Load on a cluster's ledgers and witnesses that records outcomes, for tests that inject faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use elastin::Client;
use tokio::task::JoinSet;

use crate::{History, Ledger, Log, SeededRng, WITNESSES, Witness, wait_for_some};

/// The ledgers that are appended to, by their keys from 0.
pub const LEDGERS: u64 = 8;
/// Senders that await each reply, numbered from 0, and senders that do not, numbered after them.
const SENDERS: u32 = 4;
const HASTY_SENDERS: u32 = 2;
/// The number of one-way appends that a hasty sender makes before it awaits a reply.
const TELLS: u32 = 3;
/// The observer of witnesses, as histories name it.
const OBSERVER: &str = "the client";
/// Shorter than the faults last, so that callers continue meanwhile.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// The pause of a caller after a failed call, to add no load during a fault.
const PAUSE: Duration = Duration::from_millis(20);

/// Running callers of a cluster.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    callers: JoinSet<History>,
}

impl Load {
    /// Starts callers that append to ledgers, one that reads them, and one that observes witnesses.
    pub fn start(client: &Client) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut callers = JoinSet::new();
        for sender in 0..SENDERS + HASTY_SENDERS {
            let tells = if sender < SENDERS { 0 } else { TELLS };
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            callers.spawn(append(client.clone(), sender, tells, stop, answered));
        }
        callers.spawn(read(client.clone(), Arc::clone(&stop)));
        callers.spawn(observe(client.clone(), Arc::clone(&stop)));
        Load {
            stop,
            answered,
            callers,
        }
    }

    /// The number of appends acknowledged so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends the load and returns its history.
    ///
    /// # Panics
    /// If a caller met an impossible outcome.
    pub async fn end(mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        while let Some(caller) = self.callers.join_next().await {
            history.merge(caller.expect("no caller met an impossible outcome"));
        }
        history
    }
}

/// Appends numbers to ledgers until it is stopped: some one-way, so that a message which overtakes another is detected, and
/// then one with a call.
async fn append(client: Client, sender: u32, tells: u32, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) -> History {
    let mut rng = SeededRng::new(u64::from(sender));
    let mut history = History::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let ledger = rng.below(LEDGERS as usize) as u64;
        let actor = client.actor::<Ledger>(ledger);
        for _ in 0..tells {
            number += 1;
            let sent = actor.append(sender, number).deadline(CALL_DEADLINE).tell().await;
            history.sent_one_way(ledger, sender, number, sent);
        }
        number += 1;
        let outcome = actor.append(sender, number).deadline(CALL_DEADLINE).await;
        match outcome {
            Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        history.appended(ledger, sender, number, outcome);
    }
    history
}

/// Reads ledgers, one after the other, until it is stopped.
async fn read(client: Client, stop: Arc<AtomicBool>) -> History {
    let mut history = History::default();
    while !stop.load(Ordering::Relaxed) {
        for ledger in 0..LEDGERS {
            match client.actor::<Ledger>(ledger).log().deadline(CALL_DEADLINE).await {
                Ok(log) => history.read(ledger, log),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    history
}

/// Observes witnesses, one after the other, until it is stopped.
async fn observe(client: Client, stop: Arc<AtomicBool>) -> History {
    let mut history = History::default();
    while !stop.load(Ordering::Relaxed) {
        for witness in 0..WITNESSES {
            match client.actor::<Witness>(witness).observe().deadline(CALL_DEADLINE).await {
                Ok(observation) => history.saw(witness, OBSERVER, observation),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    history
}

/// All violations: of the observations, and of the ledgers against the recorded outcomes.
pub async fn violations(history: &History, client: &Client) -> Vec<String> {
    let mut found = history.observation_violations();
    for ledger in 0..LEDGERS {
        found.extend(history.violations(ledger, &log_of(client, ledger).await));
    }
    found
}

/// Waits until every ledger is served.
///
/// # Panics
/// If that times out.
pub async fn await_service(client: &Client) {
    for ledger in 0..LEDGERS {
        log_of(client, ledger).await;
    }
}

/// A ledger's numbers. Read at the end, they decide the calls in doubt.
///
/// # Panics
/// If it can't be read for too long.
pub async fn log_of(client: &Client, ledger: u64) -> Log {
    let actor = client.actor::<Ledger>(ledger);
    let label = format!("ledger {ledger} to be readable");
    wait_for_some(&label, async || actor.log().deadline(CALL_DEADLINE).await).await
}
