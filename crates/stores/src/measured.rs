//! Metrics of a state store: requests by kind, failures by reason, and latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elastin_protocol::store::{Done, StateError, StateReply, StateRequest, StateStore, StoreFailure};

/// Labels of the request kinds.
const REQUESTS: [&str; 10] = [
    "claim", "load", "save", "delete", "get", "swap", "scan", "lock", "renew", "unlock",
];

/// Labels of the failure reasons. A request that violates the store's rules counts as refused, not as a fault.
const FAILURES: [&str; 9] = [
    "refused",
    "unreachable",
    "interrupted",
    "overloaded",
    "disk_full",
    "read_only",
    "corrupt",
    "io",
    "closed",
];

/// Upper bounds of the latency buckets; one more bucket holds longer times.
pub const TIMES: [Duration; 10] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Counts and times the requests to a store.
pub struct MeasuredState {
    store: Arc<dyn StateStore>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: [AtomicU64; REQUESTS.len()],
    failures: [AtomicU64; FAILURES.len()],
    times: [AtomicU64; TIMES.len() + 1],
    nanoseconds: AtomicU64,
    ended: AtomicU64,
}

/// Measurements of a store since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreMeasures {
    /// The number of requests of each kind.
    pub requests: Vec<(&'static str, u64)>,
    /// The number of failures for each reason.
    pub failures: Vec<(&'static str, u64)>,
    /// The number of requests in flight.
    pub waiting: u64,
    /// The number of requests in each bucket of [`TIMES`], and of longer ones.
    pub times: Vec<u64>,
    /// The total latency of all completed requests.
    pub time: Duration,
}

impl MeasuredState {
    /// Measures this store from now on.
    pub fn new(store: Arc<dyn StateStore>) -> Self {
        let counts = Arc::default();
        Self { store, counts }
    }

    /// The measurements so far.
    pub fn measures(&self) -> StoreMeasures {
        let counts = &self.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // `ended` first: a request that begins between the two reads must not make the difference negative.
        let ended = read(&counts.ended);
        let requests: Vec<_> = REQUESTS.into_iter().zip(counts.requests.iter().map(read)).collect();
        let begun: u64 = requests.iter().map(|(_, count)| count).sum();
        StoreMeasures {
            waiting: begun.saturating_sub(ended),
            requests,
            failures: FAILURES.into_iter().zip(counts.failures.iter().map(read)).collect(),
            times: counts.times.iter().map(read).collect(),
            time: Duration::from_nanos(read(&counts.nanoseconds)),
        }
    }
}

impl StateStore for MeasuredState {
    fn submit(&self, request: StateRequest, done: Done<StateReply, StateError>) {
        let kind = request_index(&request);
        add(&self.counts.requests[kind], 1);
        let (counts, began) = (Arc::clone(&self.counts), Instant::now());
        let measured = move |result: Result<StateReply, StateError>| {
            let took = began.elapsed();
            tracing::trace!(
                kind = REQUESTS[kind],
                micros = took.as_micros() as u64,
                "state store request completed"
            );
            counts.ended(took, result.as_ref().err());
            done(result);
        };
        self.store.submit(request, Box::new(measured));
    }
}

impl Counts {
    fn ended(&self, time: Duration, error: Option<&StateError>) {
        let bucket = TIMES.iter().position(|end| time <= *end).unwrap_or(TIMES.len());
        add(&self.times[bucket], 1);
        add(&self.nanoseconds, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        add(&self.ended, 1);
        if let Some(error) = error {
            add(&self.failures[failure_index(error)], 1);
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn request_index(request: &StateRequest) -> usize {
    match request {
        StateRequest::Claim { .. } => 0,
        StateRequest::Load { .. } => 1,
        StateRequest::Save { .. } => 2,
        StateRequest::Delete { .. } => 3,
        StateRequest::Get { .. } => 4,
        StateRequest::Swap { .. } => 5,
        StateRequest::Scan { .. } => 6,
        StateRequest::Lock { .. } => 7,
        StateRequest::Renew { .. } => 8,
        StateRequest::Unlock { .. } => 9,
    }
}

fn failure_index(error: &StateError) -> usize {
    let StateError::Failed(failure) = error else { return 0 };
    match failure {
        StoreFailure::Unreachable { .. } => 1,
        StoreFailure::Interrupted { .. } => 2,
        StoreFailure::Overloaded => 3,
        StoreFailure::DiskFull => 4,
        StoreFailure::ReadOnly { .. } => 5,
        StoreFailure::Corrupt { .. } => 6,
        StoreFailure::Io { .. } => 7,
        StoreFailure::Closed => 8,
    }
}

#[cfg(test)]
mod tests {
    use elastin_types::{ActivationEpoch, ActorId, ActorType, NodeId, SlotEpoch};

    use super::*;
    use crate::StateStoreExt;
    use crate::memory::MemoryState;

    #[tokio::test]
    async fn requests_failures_and_times_are_counted() {
        let store = MeasuredState::new(Arc::new(MemoryState::start()));
        let claim = |slot| StateRequest::Claim {
            actor: ActorId::new(ActorType::of("Folder"), 1),
            epoch: ActivationEpoch {
                slot: SlotEpoch(slot),
                counter: 0,
            },
            claimer: NodeId(1),
        };
        store.call(claim(2)).await.unwrap();
        store.call(claim(1)).await.unwrap_err();
        let measures = store.measures();
        let count = |of: &[(&str, u64)], name: &str| of.iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(count(&measures.requests, "claim"), 2);
        assert_eq!(count(&measures.failures, "refused"), 1);
        assert_eq!(measures.times.iter().sum::<u64>(), 2);
        assert_eq!(measures.waiting, 0);
        assert!(!measures.time.is_zero());
    }
}
