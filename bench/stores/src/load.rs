//! The loads: writers that save one state after another, each as soon as the last is durable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use elastin_protocol::store::{StateReply, StateRequest, StateStore};
use elastin_types::{ActivationEpoch, ActorId, ActorType};
use redb::{Database, TableDefinition};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("states");
/// The timeout for the writers to finish.
const LIMIT: Duration = Duration::from_secs(60);

/// Durable saves per second of a plain redb database, one by one: the rate of a store without batches.
pub(crate) fn commit_per_write(database: &Database, state_bytes: usize, time: Duration) -> Result<f64> {
    let state = vec![7; state_bytes];
    let start = Instant::now();
    let mut writes = 0;
    while start.elapsed() < time {
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?.insert(writes % 64, state.as_slice())?;
        transaction.commit()?;
        writes += 1;
    }
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}

/// A writer that submits its next save when the last has completed.
struct Writer<S> {
    store: Arc<S>,
    actor: u64,
    state: Vec<u8>,
    shared: Arc<WriterShared>,
}

struct WriterShared {
    stop: AtomicBool,
    writes: AtomicU64,
    ended: mpsc::Sender<Result<(), String>>,
}

/// Acknowledged saves per second of a store with this many concurrent writers.
pub(crate) fn save_rate<S: StateStore + 'static>(
    store: &Arc<S>,
    writers: u64,
    state_bytes: usize,
    time: Duration,
) -> Result<f64> {
    let (ended, ends) = mpsc::channel();
    let shared = Arc::new(WriterShared {
        stop: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        ended,
    });
    let start = Instant::now();
    for actor in 0..writers {
        let (store, shared, state) = (store.clone(), shared.clone(), vec![7; state_bytes]);
        save(Writer {
            store,
            actor,
            state,
            shared,
        });
    }
    std::thread::sleep(time);
    let writes = shared.writes.load(Ordering::Relaxed);
    let rate = writes as f64 / start.elapsed().as_secs_f64();
    shared.stop.store(true, Ordering::Relaxed);
    for _ in 0..writers {
        let end = ends.recv_timeout(LIMIT).context("a writer does not finish")?;
        ensure!(end.is_ok(), "a save failed: {end:?}");
    }
    Ok(rate)
}

fn save<S: StateStore + 'static>(writer: Writer<S>) {
    let request = StateRequest::Save {
        actor: ActorId::new(ActorType::of("Writer"), writer.actor),
        epoch: ActivationEpoch::default(),
        state: writer.state.clone().into(),
    };
    let store = writer.store.clone();
    let done = Box::new(move |result| {
        let saved = result == Ok(StateReply::Saved);
        if saved && !writer.shared.stop.load(Ordering::Relaxed) {
            writer.shared.writes.fetch_add(1, Ordering::Relaxed);
            return save(writer);
        }
        let end = if saved { Ok(()) } else { Err(format!("{result:?}")) };
        // The measurement may have been aborted.
        let _ = writer.shared.ended.send(end);
    });
    store.submit(request, done);
}
