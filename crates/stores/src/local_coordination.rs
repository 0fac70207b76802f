//! Coordination on a thread of this process, shared by the memory and the embedded store.

use std::sync::atomic::{AtomicU64, Ordering};

use elastin_clock::Clock;
use elastin_protocol::store::{
    COORDINATION_KEY_BYTES_MAX, Coordination, CoordinationError, CoordinationRequest, Revision, StoreFailure,
    WatchGuard, WatchSink,
};

use crate::coordination_engine::{CoordinationDone, CoordinationEngine, CoordinationJob, Journal};
use crate::watchers::WatchId;
use crate::worker::{PushError, Worker};

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
            Err(PushError::Full(job)) => (job, StoreFailure::Overloaded),
            Err(PushError::Closed(job)) => (job, StoreFailure::Closed),
        };
        if let CoordinationJob::Request { done, .. } = job {
            done(Err(failure.into()));
        }
    }

    fn watch(&self, prefix: String, from: Revision, mut sink: WatchSink) -> WatchGuard {
        let id = WatchId(self.watches.fetch_add(1, Ordering::Relaxed));
        let unbounded_handle = self.worker.unbounded_handle();
        let guard = WatchGuard::new(move || unbounded_handle.push(CoordinationJob::Unwatch { id }));
        if prefix.len() > COORDINATION_KEY_BYTES_MAX {
            let error = CoordinationError::Invalid(format!("the prefix has {} bytes", prefix.len()));
            sink(Err(error));
            return guard;
        }
        let (job, failure) = match self.worker.push(CoordinationJob::Watch { id, prefix, from, sink }, 0) {
            Ok(()) => return guard,
            Err(PushError::Full(job)) => (job, StoreFailure::Overloaded),
            Err(PushError::Closed(job)) => (job, StoreFailure::Closed),
        };
        if let CoordinationJob::Watch { mut sink, .. } = job {
            sink(Err(failure.into()));
        }
        guard
    }
}
