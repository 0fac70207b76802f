//! What a host remembers of requests: calls that their callers may make again because they could not tell what became of
//! the first. Of all calls of one request an activation runs one, also where a planned move takes it.
//!
//! Entries are kept until their caller's node says that it is done with them (each call of a request carries the number up
//! to which it is), until that node is gone, or until the activation ends.

use std::collections::{BTreeMap, BTreeSet};

use elastin_types::{ActorId, CallError, CallId, Message, NodeId, Outcome, Overloaded, Unknown};
use serde::{Deserialize, Serialize};

use crate::{Limits, Map};

/// Names a request in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId {
    /// The node whose caller makes it.
    pub origin: NodeId,
    /// Its number there.
    pub number: u64,
}

impl RequestId {
    /// The request that a message is a call of.
    pub fn of(message: &Message) -> Option<Self> {
        let request = message.header.request.filter(|_| !message.header.one_way)?;
        Some(Self {
            origin: message.header.call.origin,
            number: request.number,
        })
    }
}

/// What becomes of a call of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrival {
    /// It runs.
    Runs,
    /// Another call of the request is in the queue, or runs: its outcome goes to this one.
    Joins,
    /// It does not run, and this is its outcome.
    Over(Outcome),
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// A call of it is in the activation's queue, or runs. The outcome goes to the latest call.
    Waits { runs: CallId, latest: CallId },
    /// It ran, and this came of it.
    Ran(Outcome),
    /// It may have run, and what came of it is not known here.
    Lost,
}

/// What the new host of an actor is told of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedRequest {
    /// Which one.
    pub id: RequestId,
    /// What came of it; `None` if it was in the queue, or if that is not known.
    pub outcome: Option<Outcome>,
}

impl MovedRequest {
    /// The bytes of its reply.
    pub(crate) fn bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, bytes_of)
    }
}

/// The requests that the activations of one node know.
#[derive(Debug, Default)]
pub(crate) struct DedupTable {
    known: BTreeMap<RequestId, (ActorId, Known)>,
    of_actor: Map<ActorId, BTreeSet<RequestId>>,
    /// The calls that run or wait to, and the requests they are of.
    running: Map<CallId, RequestId>,
    /// DedupTable of a node before this number never come again; one that does has been on its way for long.
    settled_below: BTreeMap<NodeId, u64>,
    /// Of actors whose requests have been told to the target of a move: how many the target will know with what has been
    /// queued since. It may know more than are known here, because it does not hear which are settled meanwhile.
    told: Map<ActorId, usize>,
    /// The bytes of all outcomes.
    bytes: usize,
}

impl DedupTable {
    /// How many requests are remembered.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// How many the one actor remembers that has most.
    pub(crate) fn most(&self) -> usize {
        self.of_actor.values().map(BTreeSet::len).max().unwrap_or(0)
    }

    /// A call of a request has come to its actor here.
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
            let told = self.told.get(actor).copied().unwrap_or(0);
            known.max(told) >= limits.requests_per_actor
        };
        // Whoever made a call of a request that is settled has long got an outcome for it.
        if request.number < self.settled_below[&id.origin] || is_full() {
            return Arrival::Over(Err(CallError::Overloaded(Overloaded::Actor)));
        }
        if let Some(told) = self.told.get_mut(actor) {
            *told += 1;
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

    /// A call has ended here. If it is one of a request, says to which call the outcome goes, and which.
    pub(crate) fn ended(&mut self, call: CallId, outcome: Outcome, limits: &Limits) -> (CallId, Outcome) {
        // Most nodes never see a request, and most calls are of none.
        if self.running.is_empty() {
            return (call, outcome);
        }
        let Some(id) = self.running.remove(&call) else {
            return (call, outcome);
        };
        let (_, known) = self.known.get_mut(&id).expect("what runs is known");
        let Known::Waits { latest, .. } = *known else {
            unreachable!("what runs has no outcome yet");
        };
        match &outcome {
            // It has not run, so a later call of the request may.
            Err(error) if did_not_run(error) => {
                self.forget(id);
                let outcome = match error {
                    // That one came too late, but not this one.
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

    /// The call that a call in an actor's queue is answered to: the latest of its request.
    pub(crate) fn latest(&self, call: CallId) -> CallId {
        if self.running.is_empty() {
            return call;
        }
        let known = self.running.get(&call).and_then(|id| self.known.get(id));
        match known {
            Some((_, Known::Waits { latest, .. })) => *latest,
            _ => call,
        }
    }

    /// What the target of an actor's move must know.
    pub(crate) fn tell(&mut self, actor: &ActorId) -> Vec<MovedRequest> {
        let ids = self.of_actor.get(actor).into_iter().flatten();
        let moved = ids.map(|id| MovedRequest {
            id: *id,
            outcome: match &self.known[id].1 {
                Known::Ran(outcome) => Some(outcome.clone()),
                Known::Waits { .. } | Known::Lost => None,
            },
        });
        let moved: Vec<MovedRequest> = moved.collect();
        self.told.insert(actor.clone(), moved.len());
        moved
    }

    /// The move is called off.
    pub(crate) fn stays(&mut self, actor: &ActorId) {
        self.told.remove(actor);
    }

    /// An actor that is on its way here brings these along.
    pub(crate) fn come_with(&mut self, actor: &ActorId, moved: Vec<MovedRequest>, limits: &Limits) {
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

    /// A message in the queue that an actor brings along: if it is a call of a request, that has not run.
    pub(crate) fn comes_queued(&mut self, message: &Message) {
        if let (Some(id), Some(request)) = (RequestId::of(message), message.header.request) {
            self.settle(id.origin, request.settled_below);
            self.forget(id);
            self.waits(id, &message.target, message.header.call);
        }
    }

    /// An activation has ended, or gone elsewhere.
    pub(crate) fn forget_actor(&mut self, actor: &ActorId) {
        self.told.remove(actor);
        for id in self.of_actor.remove(actor).unwrap_or_default() {
            self.forget(id);
        }
    }

    /// A node is gone, and with it those who could make a request again.
    pub(crate) fn forget_origin(&mut self, origin: NodeId) {
        self.forget_below(origin, u64::MAX);
        self.settled_below.remove(&origin);
    }

    /// A node's callers are done with their requests before this number.
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

/// Whether the runtime says with this that it has not run a call. (What came too late did not begin.)
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

    /// The call with this sequence number of a request of an actor.
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
    fn a_call_that_is_made_again_gets_the_outcome_of_the_first() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        assert_eq!(requests.arrives(&message(1, 1, 7, 7), &limits), Arrival::Runs);
        assert_eq!(requests.arrives(&message(1, 2, 7, 7), &limits), Arrival::Joins);
        assert_eq!(requests.ended(call(1), paid(), &limits), (call(2), paid()));
        assert_eq!(requests.arrives(&message(1, 3, 7, 7), &limits), Arrival::Over(paid()));
        assert_eq!(
            requests.ended(call(9), paid(), &limits),
            (call(9), paid()),
            "no request"
        );
    }

    #[test]
    fn what_did_not_run_may_run_later() {
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
    fn settled_requests_are_forgotten_and_never_run() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        for number in [7, 8] {
            requests.arrives(&message(1, number, number, 7), &limits);
            assert_eq!(requests.ended(call(number), paid(), &limits), (call(number), paid()));
        }
        assert_eq!(
            requests.arrives(&message(1, 9, 9, 7), &limits),
            FULL,
            "two are remembered"
        );
        assert_eq!(requests.arrives(&message(2, 9, 9, 9), &limits), Arrival::Runs);
        assert_eq!(requests.len(), 1, "also those of other actors");
        assert_eq!(requests.arrives(&message(1, 10, 7, 7), &limits), FULL, "a late call");
        requests.forget_origin(ORIGIN);
        assert_eq!((requests.len(), requests.bytes), (0, 0));
    }

    #[test]
    fn a_move_takes_them_along() {
        let (mut source, mut target, limits) = (DedupTable::default(), DedupTable::default(), limits());
        source.arrives(&message(1, 1, 1, 1), &limits);
        assert_eq!(source.ended(call(1), paid(), &limits), (call(1), paid()));
        let queued = message(1, 2, 2, 1);
        source.arrives(&queued, &limits);
        target.come_with(&actor(1), source.tell(&actor(1)), &limits);
        let unknown = || Arrival::Over(Err(CallError::Unknown(Unknown::NodeLost)));
        assert_eq!(target.arrives(&message(1, 3, 1, 1), &limits), Arrival::Over(paid()));
        assert_eq!(
            target.arrives(&message(1, 3, 2, 1), &limits),
            unknown(),
            "its queue is not there"
        );
        target.comes_queued(&queued);
        assert_eq!(target.arrives(&message(1, 4, 2, 1), &limits), Arrival::Joins);
        assert_eq!(target.arrives(&queued, &limits), Arrival::Runs, "it has not run");
        // The target knows two, so no third is taken, settled or not.
        assert_eq!(source.arrives(&message(1, 5, 3, 3), &limits), FULL);
        source.stays(&actor(1));
        assert_eq!(source.arrives(&message(1, 5, 3, 3), &limits), Arrival::Runs);
        source.forget_actor(&actor(1));
        assert_eq!((source.len(), source.bytes), (0, 0));
    }

    #[test]
    fn replies_beyond_the_bound_are_not_kept() {
        let (mut requests, limits) = (DedupTable::default(), limits());
        requests.arrives(&message(1, 1, 1, 1), &limits);
        let long: Outcome = Ok(Bytes::from_static(b"a long reply"));
        assert_eq!(requests.ended(call(1), long.clone(), &limits), (call(1), long));
        let again = requests.arrives(&message(1, 2, 1, 1), &limits);
        assert_eq!(
            again,
            Arrival::Over(Err(CallError::Unknown(Unknown::NodeLost))),
            "nor does it run again"
        );
    }
}
