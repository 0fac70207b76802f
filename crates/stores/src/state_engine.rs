//! Runs state requests in batches over whatever keeps the rows.

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StoreFailure};
use elastin_types::Time;

use crate::worker::{Engine, NotTaken, Worker, contain};

/// How one state request ended.
pub(crate) type StateResult = Result<StateReply, StateError>;

/// A request with the callback that waits for its end.
pub(crate) struct StateJob {
    request: StateRequest,
    done: Done<StateReply, StateError>,
}

/// Carries out batches of requests: memory, or a file.
pub(crate) trait StateBacking: Send + 'static {
    /// Carries out the requests in order and makes them durable together. The results are in the same order.
    fn run(&mut self, now: Time, requests: Vec<StateRequest>) -> Vec<StateResult>;
}

pub(crate) struct StateEngine<B>(pub(crate) B);

impl<B: StateBacking> Engine<StateJob> for StateEngine<B> {
    fn run(&mut self, now: Time, jobs: Vec<StateJob>) {
        let (requests, dones): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.request, job.done)).unzip();
        let results = self.0.run(now, requests);
        assert_eq!(results.len(), dones.len(), "every request has a result");
        for (done, result) in dones.into_iter().zip(results) {
            contain(|| done(result));
        }
    }

    fn wake_at(&self) -> Option<Time> {
        // Locks run out without anybody being told.
        None
    }
}

/// Queues a request, or ends it at once if the worker does not take it.
pub(crate) fn submit(worker: &Worker<StateJob>, request: StateRequest, done: Done<StateReply, StateError>) {
    let bytes = request.payload_bytes();
    match worker.push(StateJob { request, done }, bytes) {
        Ok(()) => {}
        Err(NotTaken::Full(job)) => (job.done)(Err(StoreFailure::Overloaded.into())),
        Err(NotTaken::Closed(job)) => (job.done)(Err(StoreFailure::Closed.into())),
    }
}
