//! Runs coordination requests, ends leases and serves watches over whatever keeps the model.

use std::sync::atomic::{AtomicU64, Ordering};

use elastin_protocol::store::{
    Coordination, CoordinationError, CoordinationModel, CoordinationReply, CoordinationRequest, Done, Revision,
    StoreFailure, Touched, WatchGuard, WatchSink,
};
use elastin_types::Time;

use crate::watchers::{WatchId, Watchers};
use crate::worker::{Engine, NotTaken, Worker, contain};

type CoordinationDone = Done<CoordinationReply, CoordinationError>;

/// What the worker of a coordination store can be told.
pub(crate) enum CoordinationJob {
    Request {
        request: CoordinationRequest,
        done: CoordinationDone,
    },
    Watch {
        id: WatchId,
        prefix: String,
        from: Revision,
        sink: WatchSink,
    },
    Unwatch {
        id: WatchId,
    },
}

/// Keeps a model over restarts, or does not.
pub(crate) trait Journal: Send + 'static {
    /// The model as it was kept last. Its leases live for their whole time from `now` on.
    fn load(&mut self, now: Time) -> Result<CoordinationModel, StoreFailure>;

    /// Keeps what was touched. If that fails, the model in memory is no longer to be trusted: load it again.
    fn keep(&mut self, model: &CoordinationModel, touched: &Touched) -> Result<(), StoreFailure>;
}

pub(crate) struct CoordinationEngine<J> {
    journal: J,
    /// `None` after the journal failed, until it can be loaded again.
    model: Option<CoordinationModel>,
    watchers: Watchers,
}

/// A request of the batch that is being carried out.
struct Pending {
    /// A copy of a request that only reads, to read again if the batch could not be kept.
    read: Option<CoordinationRequest>,
    done: CoordinationDone,
    result: Result<CoordinationReply, CoordinationError>,
}

impl<J: Journal> CoordinationEngine<J> {
    /// An engine that goes on where the journal ends.
    pub(crate) fn load(mut journal: J) -> Result<Self, StoreFailure> {
        let model = Some(journal.load(Time::ZERO)?);
        let watchers = Watchers::default();
        Ok(Self {
            journal,
            model,
            watchers,
        })
    }

    /// Makes sure that there is a model to work on.
    fn recover(&mut self, now: Time) -> Result<&mut CoordinationModel, StoreFailure> {
        let model = match self.model.take() {
            Some(model) => model,
            None => self.journal.load(now)?,
        };
        Ok(self.model.insert(model))
    }

    fn carry_out(&mut self, now: Time, jobs: Vec<CoordinationJob>) -> Vec<Pending> {
        let mut pending = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                CoordinationJob::Request { request, done } => {
                    let read = (!request.is_write()).then(|| request.clone());
                    let result = match self.recover(now) {
                        Ok(model) => model.handle(now, request),
                        Err(failure) => Err(failure.into()),
                    };
                    pending.push(Pending { read, done, result });
                }
                CoordinationJob::Watch { id, prefix, from, sink } => self.watchers.add(id, prefix, from, sink),
                CoordinationJob::Unwatch { id } => self.watchers.remove(id),
            }
        }
        pending
    }

    /// Makes the batch durable. If that fails, its writes fail, and its reads see what is there without them.
    fn keep(&mut self, now: Time, pending: &mut [Pending]) {
        let Some(model) = &mut self.model else { return };
        model.expire(now);
        let touched = model.take_touched();
        if touched.is_empty() {
            return;
        }
        let Err(failure) = self.journal.keep(model, &touched) else {
            return;
        };
        tracing::error!(%failure, "coordination could not be kept");
        self.model = None;
        for job in pending {
            job.result = match (job.read.take(), self.recover(now)) {
                (Some(read), Ok(model)) => model.handle(now, read),
                _ => Err(failure.clone().into()),
            };
        }
    }
}

impl<J: Journal> Engine<CoordinationJob> for CoordinationEngine<J> {
    fn run(&mut self, now: Time, jobs: Vec<CoordinationJob>) {
        let mut pending = self.carry_out(now, jobs);
        self.keep(now, &mut pending);
        for Pending { done, result, .. } in pending {
            contain(|| done(result));
        }
        if let Some(model) = &self.model {
            self.watchers.deliver(model);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.model.as_ref()?.next_end()
    }
}

/// A coordination store on a thread of this process.
pub(crate) struct LocalCoordination {
    worker: Worker<CoordinationJob>,
    watches: AtomicU64,
}

impl LocalCoordination {
    pub(crate) fn start(name: &str, engine: CoordinationEngine<impl Journal>) -> Self {
        Self {
            worker: Worker::start(name, engine),
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
        if prefix.len() > elastin_protocol::store::COORDINATION_KEY_BYTES_MAX {
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
