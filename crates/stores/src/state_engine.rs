//! Executes state requests in batches over a [`StateBacking`].

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StoreFailure};
use elastin_types::Time;

use crate::worker::{Engine, PushError, Worker, contain};

/// The result of one state request.
pub(crate) type StateResult = Result<StateReply, StateError>;

/// A request with its completion callback.
pub(crate) struct StateJob {
    request: StateRequest,
    done: Done<StateReply, StateError>,
}

/// Executes batches of requests, in memory or in a file.
pub(crate) trait StateBacking: Send + 'static {
    /// Executes the requests in order and makes them durable together. The results are in the same order.
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
        // Locks expire passively: their times are compared when a request needs them.
        None
    }
}

/// Queues a request, or fails it immediately if the worker rejects it.
pub(crate) fn submit(worker: &Worker<StateJob>, request: StateRequest, done: Done<StateReply, StateError>) {
    let bytes = request.payload_bytes();
    match worker.push(StateJob { request, done }, bytes) {
        Ok(()) => {}
        Err(PushError::Full(job)) => (job.done)(Err(StoreFailure::Overloaded.into())),
        Err(PushError::Closed(job)) => (job.done)(Err(StoreFailure::Closed.into())),
    }
}
