//! Coordination on a thread of this process: what the memory and the embedded store have in common.

use std::sync::atomic::{AtomicU64, Ordering};

use elastin_clock::Clock;
use elastin_protocol::store::{
    COORDINATION_KEY_BYTES_MAX, Coordination, CoordinationError, CoordinationRequest, Revision, StoreFailure,
    WatchGuard, WatchSink,
};

use crate::coordination_engine::{CoordinationDone, CoordinationEngine, CoordinationJob, Journal};
use crate::watchers::WatchId;
use crate::worker::{NotTaken, Worker};

/// A coordination store on a thread of this process.
pub(crate) struct LocalCoordination {
    worker: Worker<CoordinationJob>,
    watches: AtomicU64,
}

impl LocalCoordination {
    pub(crate) fn start(name: &str, clock: Clock, engine: CoordinationEngine<impl Journal>) -> Self {
        Self {
            worker: Worker::start(name, clock, engine),
            watches: AtomicU64::new(0),
        }
    }
}

impl Coordination for LocalCoordination {
    fn submit(&self, request: CoordinationRequest, done: CoordinationDone) {
        let bytes = request.payload_bytes();
        let (job, failure) = match self.worker.push(CoordinationJob::Request { request, done }, bytes) {
            Ok(()) => return,
            Err(NotTaken::Full(job)) => (job, StoreFailure::Overloaded),
            Err(NotTaken::Closed(job)) => (job, StoreFailure::Closed),
        };
        if let CoordinationJob::Request { done, .. } = job {
            done(Err(failure.into()));
        }
    }

    fn watch(&self, prefix: String, from: Revision, mut sink: WatchSink) -> WatchGuard {
        let id = WatchId(self.watches.fetch_add(1, Ordering::Relaxed));
        let side_door = self.worker.side_door();
        let guard = WatchGuard::new(move || side_door.push(CoordinationJob::Unwatch { id }));
        if prefix.len() > COORDINATION_KEY_BYTES_MAX {
            let error = CoordinationError::Invalid(format!("a prefix of {} bytes", prefix.len()));
            sink(Err(error));
            return guard;
        }
        let (job, failure) = match self.worker.push(CoordinationJob::Watch { id, prefix, from, sink }, 0) {
            Ok(()) => return guard,
            Err(NotTaken::Full(job)) => (job, StoreFailure::Overloaded),
            Err(NotTaken::Closed(job)) => (job, StoreFailure::Closed),
        };
        if let CoordinationJob::Watch { mut sink, .. } = job {
            sink(Err(failure.into()));
        }
        guard
    }
}
