//! Deduplication records of a host: an activation runs at most one call of a request, even after a planned move.
//!
//! Callers retry calls whose outcome is unknown. A record is dropped when its caller's node has settled the request,
//! when that node is gone, or when the activation ends. Each call of a request carries the number below which its
//! caller's requests are settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use elastin_types::{ActorId, CallError, CallId, Message, NodeId, Outcome, Overloaded, Unknown};
use serde::{Deserialize, Serialize};

use crate::{Limits, Map};

/// Identifies a request within the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId {
    /// The caller's node.
    pub origin: NodeId,
    /// The request's number on that node.
    pub number: u64,
}

impl RequestId {
    /// The request that a message belongs to.
    pub fn of(message: &Message) -> Option<Self> {
        let request = message.header.request.filter(|_| !message.header.one_way)?;
        Some(Self {
            origin: message.header.call.origin,
            number: request.number,
        })
    }
}

/// Disposition of a call of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrival {
    /// Run the call.
    Runs,
    /// Another call of the request is queued or running: this call gets its outcome.
    Joins,
    /// Do not run the call; its outcome is this.
    Over(Outcome),
}

/// State of a request.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// A call of the request is queued or running. The outcome goes to the latest call.
    Waits { runs: CallId, latest: CallId },
    /// The request ran, with this outcome.
    Ran(Outcome),
    /// The request may have run, with an unknown outcome.
    Lost,
}

/// A deduplication record sent to the new host of an actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedRequest {
    /// The request.
    pub id: RequestId,
    /// The outcome; `None` if the call was queued, or if the outcome is unknown.
    pub outcome: Option<Outcome>,
}

impl MovedRequest {
    /// Bytes of the reply.
    pub(crate) fn bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, bytes_of)
    }
}

/// Deduplication records of the activations of one node.
#[derive(Debug, Default)]
pub(crate) struct DedupTable {
    known: BTreeMap<RequestId, (ActorId, Known)>,
    of_actor: Map<ActorId, BTreeSet<RequestId>>,
    /// The calls that are queued or running, with their requests.
    running: Map<CallId, RequestId>,
    /// Per origin, the number below which its requests are settled. A call of a settled request is stale.
    settled_below: BTreeMap<NodeId, u64>,
    /// For actors whose records were sent to the target of a move: how many records the target will have, including
    /// calls queued since. It may have more than this node, because it does not learn which are settled meanwhile.
    handed_over: Map<ActorId, usize>,
    /// Bytes of all outcomes.
    bytes: usize,
}

impl DedupTable {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Number of records of the actor that has the most.
    pub(crate) fn most(&self) -> usize {
        self.of_actor.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    /// Handles a call that has reached its actor here.
    pub(crate) fn arrives(&mut self, message: &Message, limits: &Limits) -> Arrival {
        let (Some(id), Some(request)) = (RequestId::of(message), message.header.request) else {
            return Arrival::Runs;
        };
        let (actor, call) = (&message.target, message.header.call);
        self.settle(id.origin, request.settled_below);
        match self.known.get_mut(&id).map(|(_, known)| known) {
            Some(Known::Waits { runs, .. }) if *runs == call => return Arrival::Runs,
            Some(Known::Waits { latest, .. }) => {
                *latest = call;
                return Arrival::Joins;
            }
            Some(Known::Ran(outcome)) => return Arrival::Over(outcome.clone()),
            Some(Known::Lost) => return Arrival::Over(Err(CallError::Unknown(Unknown::NodeLost))),
            None => {}
        }
        let is_full = || {
            let known = self.of_actor.get(actor).map_or(0, BTreeSet::len);
            let handed_over = self.handed_over.get(actor).copied().unwrap_or(0);
            known.max(handed_over) >= limits.requests_per_actor
        };
        // The caller of a settled request has had an outcome for long.
        if request.number < self.settled_below[&id.origin] || is_full() {
            return Arrival::Over(Err(CallError::Overloaded(Overloaded::Actor)));
        }
        if let Some(handed_over) = self.handed_over.get_mut(actor) {
            *handed_over += 1;
        }
        self.waits(id, actor, call);
        Arrival::Runs
    }

    fn waits(&mut self, id: RequestId, actor: &ActorId, call: CallId) {
        let (runs, latest) = (call, call);
        self.running.insert(call, id);
        self.of_actor.entry(actor.clone()).or_default().insert(id);
        self.known.insert(id, (actor.clone(), Known::Waits { runs, latest }));
    }

    /// Records the end of a call. Returns the call to answer, which is the latest of its request, and its outcome.
    pub(crate) fn ended(&mut self, call: CallId, outcome: Outcome, limits: &Limits) -> (CallId, Outcome) {
        // Fast path: most nodes never see a request, and most calls belong to none.
        if self.running.is_empty() {
            return (call, outcome);
        }
        let Some(id) = self.running.remove(&call) else {
            return (call, outcome);
        };
        let (_, known) = self.known.get_mut(&id).expect("a running call has a record");
        let Known::Waits { latest, .. } = *known else {
            unreachable!("a running call has no outcome yet");
        };
        match &outcome {
            // The call has not run, so a later call of the request may.
            Err(error) if did_not_run(error) => {
                self.forget(id);
                let outcome = match error {
                    // The deadline was that of the earlier call, not of this one.
                    CallError::DeadlineExceeded if latest != call => Err(CallError::Overloaded(Overloaded::Actor)),
                    _ => outcome,
                };
                return (latest, outcome);
            }
            _ => {}
        }
        let bytes = bytes_of(&outcome);
        if self.bytes + bytes > limits.request_bytes {
            *known = Known::Lost;
        } else {
            self.bytes += bytes;
            *known = Known::Ran(outcome.clone());
        }
        (latest, outcome)
    }

    /// Gives a queued message the id of the call to answer in its place: the latest of its request.
    pub(crate) fn relabel(&self, message: &mut Arc<Message>) {
        let known = self.running.get(&message.header.call).and_then(|id| self.known.get(id));
        if let Some((_, Known::Waits { latest, .. })) = known
            && *latest != message.header.call
        {
            Arc::make_mut(message).header.call = *latest;
        }
    }

    /// The records that the target of an actor's move needs.
    pub(crate) fn hand_over(&mut self, actor: &ActorId) -> Vec<MovedRequest> {
        let ids = self.of_actor.get(actor).into_iter().flatten();
        let moved = ids.map(|id| MovedRequest {
            id: *id,
            outcome: match &self.known[id].1 {
                Known::Ran(outcome) => Some(outcome.clone()),
                Known::Waits { .. } | Known::Lost => None,
            },
        });
        let moved: Vec<MovedRequest> = moved.collect();
        self.handed_over.insert(actor.clone(), moved.len());
        moved
    }

    /// Handles a move that was called off.
    pub(crate) fn move_cancelled(&mut self, actor: &ActorId) {
        self.handed_over.remove(actor);
    }

    /// Takes over the records of an actor that is moving here.
    pub(crate) fn take_over(&mut self, actor: &ActorId, moved: Vec<MovedRequest>, limits: &Limits) {
        for MovedRequest { id, outcome } in moved {
            self.forget(id);
            let known = match outcome {
                Some(outcome) if self.bytes + bytes_of(&outcome) <= limits.request_bytes => {
                    self.bytes += bytes_of(&outcome);
                    Known::Ran(outcome)
                }
                _ => Known::Lost,
            };
            self.of_actor.entry(actor.clone()).or_default().insert(id);
            self.known.insert(id, (actor.clone(), known));
        }
    }

    /// Handles a message in the queue of an actor that is moving here. A call of a request in it has not run.
    pub(crate) fn take_over_queued(&mut self, message: &Message) {
        if let (Some(id), Some(request)) = (RequestId::of(message), message.header.request) {
            self.settle(id.origin, request.settled_below);
            self.forget(id);
            self.waits(id, &message.target, message.header.call);
        }
    }

    /// Drops the records of an activation that ended or moved away.
    pub(crate) fn forget_actor(&mut self, actor: &ActorId) {
        self.handed_over.remove(actor);
        for id in self.of_actor.remove(actor).unwrap_or_default() {
            self.forget(id);
        }
    }

    /// Drops the records of a node that is gone, and whose callers cannot retry.
    pub(crate) fn forget_origin(&mut self, origin: NodeId) {
        self.forget_below(origin, u64::MAX);
        self.settled_below.remove(&origin);
    }

    /// Drops the records of an origin's requests below this number.
    fn settle(&mut self, origin: NodeId, below: u64) {
        let known = self.settled_below.entry(origin).or_insert(0);
        if *known < below {
            *known = below;
            self.forget_below(origin, below);
        }
    }

    fn forget_below(&mut self, origin: NodeId, below: u64) {
        let all = RequestId { origin, number: 0 }..RequestId { origin, number: below };
        let settled: Vec<RequestId> = self.known.range(all).map(|(id, _)| *id).collect();
        for id in settled {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: RequestId) {
        let Some((actor, known)) = self.known.remove(&id) else {
            return;
        };
        match &known {
            Known::Waits { runs, .. } => {
                self.running.remove(runs);
            }
            Known::Ran(outcome) => self.bytes -= bytes_of(outcome),
            Known::Lost => {}
        }
        if let Some(ids) = self.of_actor.get_mut(&actor) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_actor.remove(&actor);
            }
        }
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    outcome.as_ref().map_or(0, |reply| reply.len())
}

/// Whether the error means that the runtime has not run the call. (A call past its deadline did not start.)
fn did_not_run(error: &CallError) -> bool {
    error.is_safe_to_retry()
        || matches!(
            error,
            CallError::Rejected(_) | CallError::CallCycle | CallError::DeadlineExceeded
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use elastin_types::{ActorType, Caller, Header, Method, Request};

    const ORIGIN: NodeId = NodeId(5);

    fn call(sequence: u64) -> CallId {
        CallId {
            origin: ORIGIN,
            sequence,
        }
    }

    fn actor(key: u64) -> ActorId {
        ActorId::new(ActorType::of("Account"), key)
    }

    /// A call of a request.
    fn message(to: u64, sequence: u64, number: u64, settled_below: u64) -> Message {
        Message {
            target: actor(to),
            header: Header {
                request: Some(Request { number, settled_below }),
                ..Header::of_call(call(sequence), Caller::Client(ORIGIN))
            },
            method: Method::of("pay"),
            body: Bytes::new(),
        }
    }

    fn limits() -> Limits {
        Limits {
            requests_per_actor: 2,
            request_bytes: 10,
            ..Limits::default()
        }
    }

    fn paid() -> Outcome {
        Ok(Bytes::from_static(b"paid"))
    }

    const FULL: Arrival = Arrival::Over(Err(CallError::Overloaded(Overloaded::Actor)));

    #[test]
    fn a_retried_call_gets_the_first_outcome() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        assert_eq!(requests.arrives(&message(1, 1, 7, 7), &limits), Arrival::Runs);
        assert_eq!(requests.arrives(&message(1, 2, 7, 7), &limits), Arrival::Joins);
        assert_eq!(requests.ended(call(1), paid(), &limits), (call(2), paid()));
        assert_eq!(requests.arrives(&message(1, 3, 7, 7), &limits), Arrival::Over(paid()));
        assert_eq!(
            requests.ended(call(9), paid(), &limits),
            (call(9), paid()),
            "not a call of a request"
        );
    }

    #[test]
    fn a_call_that_did_not_run_may_run_later() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        let full = || Err(CallError::Overloaded(Overloaded::Actor));
        for sequence in [1, 2] {
            assert_eq!(requests.arrives(&message(1, sequence, 7, 7), &limits), Arrival::Runs);
            assert_eq!(
                requests.ended(call(sequence), full(), &limits),
                (call(sequence), full())
            );
        }
        assert_eq!(requests.arrives(&message(1, 3, 7, 7), &limits), Arrival::Runs);
        assert_eq!(requests.arrives(&message(1, 4, 7, 7), &limits), Arrival::Joins);
        let late = Err(CallError::DeadlineExceeded);
        assert_eq!(requests.ended(call(3), late, &limits), (call(4), full()));
    }

    #[test]
    fn settled_requests_are_dropped_and_never_run() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        for number in [7, 8] {
            requests.arrives(&message(1, number, number, 7), &limits);
            assert_eq!(requests.ended(call(number), paid(), &limits), (call(number), paid()));
        }
        assert_eq!(
            requests.arrives(&message(1, 9, 9, 7), &limits),
            FULL,
            "two records is the limit"
        );
        assert_eq!(requests.arrives(&message(2, 9, 9, 9), &limits), Arrival::Runs);
        assert_eq!(requests.len(), 1, "records of other actors are dropped too");
        assert_eq!(requests.arrives(&message(1, 10, 7, 7), &limits), FULL, "a stale call");
        requests.forget_origin(ORIGIN);
        assert_eq!((requests.len(), requests.bytes), (0, 0));
    }

    #[test]
    fn a_move_carries_records_along() {
        let (mut source, mut target, limits) = (DedupTable::default(), DedupTable::default(), limits());
        source.arrives(&message(1, 1, 1, 1), &limits);
        assert_eq!(source.ended(call(1), paid(), &limits), (call(1), paid()));
        let queued = message(1, 2, 2, 1);
        source.arrives(&queued, &limits);
        target.take_over(&actor(1), source.hand_over(&actor(1)), &limits);
        let unknown = || Arrival::Over(Err(CallError::Unknown(Unknown::NodeLost)));
        assert_eq!(target.arrives(&message(1, 3, 1, 1), &limits), Arrival::Over(paid()));
        assert_eq!(
            target.arrives(&message(1, 3, 2, 1), &limits),
            unknown(),
            "the target has a record, but not the queue yet"
        );
        target.take_over_queued(&queued);
        assert_eq!(target.arrives(&message(1, 4, 2, 1), &limits), Arrival::Joins);
        assert_eq!(
            target.arrives(&queued, &limits),
            Arrival::Runs,
            "a queued call has not run"
        );
        // The target has two records, so no third is accepted, settled or not.
        assert_eq!(source.arrives(&message(1, 5, 3, 3), &limits), FULL);
        source.move_cancelled(&actor(1));
        assert_eq!(source.arrives(&message(1, 5, 3, 3), &limits), Arrival::Runs);
        source.forget_actor(&actor(1));
        assert_eq!((source.len(), source.bytes), (0, 0));
    }

    #[test]
    fn replies_beyond_the_byte_limit_are_not_kept() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        requests.arrives(&message(1, 1, 1, 1), &limits);
        let long: Outcome = Ok(Bytes::from_static(b"a long reply"));
        assert_eq!(requests.ended(call(1), long.clone(), &limits), (call(1), long));
        let again = requests.arrives(&message(1, 2, 1, 1), &limits);
        assert_eq!(
            again,
            Arrival::Over(Err(CallError::Unknown(Unknown::NodeLost))),
            "it does not run again either"
        );
    }
}
