//! A caller that calls continuously, and whose calls must all succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use elastin::Client;
use tokio::task::JoinHandle;

use crate::{Journal, wait_for};

/// The actors that are called, by their keys from 0: enough that every server has some, and every part of the
/// directory.
const JOURNALS: u64 = 64;
/// Far longer than a call takes on a slow machine.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Number of calls that reach every actor.
const CALLS: u64 = 2 * JOURNALS;

/// Calls actors one after the other, for tests in which no call may fail. Each call must succeed, and run once.
pub struct Caller {
    calls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    calling: JoinHandle<()>,
}

impl Caller {
    /// Starts the calls.
    pub fn start(client: Client) -> Caller {
        let (calls, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let calling = tokio::spawn(call(client, Arc::clone(&calls), Arc::clone(&stop)));
        Caller { calls, stop, calling }
    }

    /// Waits until it has called every actor again.
    ///
    /// # Panics
    /// If a call failed.
    pub async fn await_round(&self) {
        let before = self.calls.load(Ordering::SeqCst);
        wait_for("calls to continue", || {
            assert!(!self.calling.is_finished(), "a call failed");
            self.calls.load(Ordering::SeqCst) > before + CALLS
        })
        .await;
    }

    /// Ends after it has called every actor again.
    ///
    /// # Panics
    /// If a call failed.
    pub async fn end(self) {
        self.await_round().await;
        self.stop.store(true, Ordering::SeqCst);
        self.calling.await.expect("every call succeeds");
    }
}

async fn call(client: Client, calls: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    for round in 1.. {
        for key in 0..JOURNALS {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let journal = client.actor::<Journal>(key);
            assert_eq!(journal.append(1, round).deadline(CALL_DEADLINE).await, Ok(round));
            calls.fetch_add(1, Ordering::SeqCst);
        }
    }
}
