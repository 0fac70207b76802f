//! Callers of a cluster's ledgers who remember what they were told, for tests that break things meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elastin::Client;
use tokio::task::JoinSet;

use crate::{Dice, History, Ledger, Log};

/// The ledgers that are appended to, by their keys from 0.
pub const LEDGERS: u64 = 8;
const SENDERS: u32 = 4;
/// Shorter than the faults last, so that callers go on meanwhile.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// How long it may take until everything is served again after a fault.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a caller whose call failed waits before the next one, so as not to add to the trouble.
const PAUSE: Duration = Duration::from_millis(20);

/// Callers of a cluster, at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    callers: JoinSet<History>,
}

impl Load {
    /// Starts some callers who append to ledgers, and one who reads them.
    pub fn start(client: &Client) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for sender in 0..SENDERS {
            callers.spawn(append(client.clone(), sender, Arc::clone(&stop)));
        }
        callers.spawn(read(client.clone(), Arc::clone(&stop)));
        Load { stop, callers }
    }

    /// Ends the load: what the callers know.
    ///
    /// # Panics
    /// If a caller met an outcome that can't be.
    pub async fn end(mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        let mut history = History::default();
        while let Some(caller) = self.callers.join_next().await {
            history.merge(caller.expect("no caller met an outcome that can't be"));
        }
        history
    }
}

/// Appends numbers to ledgers, one call after the other, until it is told to stop.
async fn append(client: Client, sender: u32, stop: Arc<AtomicBool>) -> History {
    let mut dice = Dice::new(u64::from(sender));
    let mut history = History::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let ledger = dice.below(LEDGERS as usize) as u64;
        number += 1;
        let call = client.actor::<Ledger>(ledger);
        let outcome = call.append(sender, number).deadline(CALL_DEADLINE).await;
        if outcome.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
        history.appended(ledger, sender, number, outcome);
    }
    history
}

/// Reads ledgers, one after the other, until it is told to stop.
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

/// Everything in the ledgers that can't be, given what callers know.
pub async fn violations(history: &History, client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for ledger in 0..LEDGERS {
        found.extend(history.violations(ledger, &log_of(client, ledger).await));
    }
    found
}

/// Waits until every ledger is served.
///
/// # Panics
/// If that takes too long.
pub async fn await_service(client: &Client) {
    for ledger in 0..LEDGERS {
        log_of(client, ledger).await;
    }
}

/// A ledger's numbers. When everything is over, what was in doubt has been decided.
async fn log_of(client: &Client, ledger: u64) -> Log {
    let began = Instant::now();
    loop {
        match client.actor::<Ledger>(ledger).log().deadline(CALL_DEADLINE).await {
            Ok(log) => return log,
            Err(error) => {
                let spent = began.elapsed();
                assert!(spent < RECOVERY_TIME_MAX, "ledger {ledger} can't be read: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
