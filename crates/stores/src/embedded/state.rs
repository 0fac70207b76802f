//! The state store in a file.

use std::path::Path;

use elastin_clock::Clock;
use elastin_protocol::store::{Done, StateError, StateModel, StateReply, StateRequest, StateStore, StoreFailure};
use elastin_types::Time;

use super::OpenError;
use super::file::{End, StoreFile};
use super::state_tables::RedbTables;
use crate::state_engine::{self, StateBacking, StateEngine, StateJob, StateResult};
use crate::worker::Worker;

/// A state store in a file. One transaction executes all queued requests, so the rate of durable writes grows with the
/// number of writers. Dropping it completes the submitted requests and closes the file.
pub struct EmbeddedState {
    worker: Worker<StateJob>,
}

impl EmbeddedState {
    /// Opens the file, or creates it if it does not exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        Self::start(StoreFile::open(path)?, &path.display().to_string())
    }

    pub(super) fn start(mut file: StoreFile, path: &str) -> Result<Self, OpenError> {
        file.transact(|transaction| {
            let mut tables = RedbTables::open(transaction)?;
            // The worker's clock starts at zero.
            tables.restart_locks(Time::ZERO)?;
            Ok(((), end(tables)?))
        })
        .map_err(|failure| OpenError::Failed {
            path: path.to_owned(),
            failure,
        })?;
        let worker = Worker::start("state-file", Clock::start(), StateEngine(file));
        Ok(Self { worker })
    }
}

impl StateStore for EmbeddedState {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        state_engine::submit(&self.worker, request, done);
    }
}

impl StateBacking for StoreFile {
    fn run(&mut self, now: Time, requests: Vec<StateRequest>) -> Vec<StateResult> {
        // Copies of the reads, to execute them again if the writes before them can't be persisted.
        let reads: Vec<Option<StateRequest>> = requests
            .iter()
            .map(|request| (!request.is_write()).then(|| request.clone()))
            .collect();
        match run(self, now, requests) {
            Ok(results) => results,
            Err(failure) => {
                tracing::error!(%failure, "failed to persist actor state");
                reads
                    .into_iter()
                    .map(|read| read_again(self, now, read, &failure))
                    .collect()
            }
        }
    }
}

fn run(file: &mut StoreFile, now: Time, requests: Vec<StateRequest>) -> Result<Vec<StateResult>, StoreFailure> {
    file.transact(|transaction| {
        let mut model = StateModel::new(RedbTables::open(transaction)?);
        let results = requests.into_iter().map(|request| model.handle(now, request)).collect();
        Ok((results, end(model.into_tables())?))
    })
}

/// The result of one request of a failed batch: a read is executed again, a write gets the failure.
fn read_again(file: &mut StoreFile, now: Time, read: Option<StateRequest>, failure: &StoreFailure) -> StateResult {
    let Some(read) = read else {
        return Err(failure.clone().into());
    };
    let mut results = run(file, now, vec![read])?;
    results.pop().expect("one request has one result")
}

fn end(tables: RedbTables<'_>) -> Result<End, StoreFailure> {
    Ok(if tables.finish()? { End::Commit } else { End::Discard })
}
