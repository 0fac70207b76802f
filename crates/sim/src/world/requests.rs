//! Requests: calls that a client retries while their outcome is unknown.

use std::time::Duration;

use elastin_protocol::Event;
use elastin_types::{ActorId, CallError, CallId, Caller, NodeId, Outcome};

use super::callers::Outgoing;
use super::{World, WorldEvent};

/// The most calls of one request.
const CALLS_MAX: u32 = 4;
/// The longest delay before a retry.
const RETRY_DELAY_MOST: Duration = Duration::from_millis(20);

/// A request with a call in flight.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    outgoing: Outgoing,
    number: u64,
    /// The calls made so far.
    calls: u32,
}

impl World {
    /// Begins a request of a client to an actor, which sends tells to others in turn.
    pub(crate) fn client_requests(&mut self, client: NodeId, to: &ActorId, tells: Vec<ActorId>) {
        let process = self.processes.get_mut(&client).expect("the client lives");
        let Some(number) = process.node.begin_request() else {
            return;
        };
        self.log.count("request");
        let outgoing = Outgoing {
            caller: Caller::Client(client),
            sender_incarnation: 0,
            to: to.clone(),
            tells,
            one_way: false,
            request: Some(number),
        };
        let calls = 0;
        let pending = PendingRequest {
            outgoing,
            number,
            calls,
        };
        self.call_for_request(client, pending);
    }

    /// Sends the first call of a request, or a retry.
    pub(super) fn call_for_request(&mut self, client: NodeId, mut pending: PendingRequest) {
        if !self.is_alive(client) {
            return;
        }
        pending.calls += 1;
        if pending.calls > 1 {
            self.log.count("request retried");
        }
        // The call may end while it is sent.
        let sequence = self.next_call.get(&client).copied().unwrap_or(0) + 1;
        let call = CallId {
            origin: client,
            sequence,
        };
        let outgoing = pending.outgoing.clone();
        self.pending_requests.insert(call, pending);
        let sent = self.send(client, outgoing);
        assert_eq!(call, sent, "calls are numbered in order");
    }

    /// Handles the end of a call. If it belongs to a request and it is unknown whether it ran, the client retries.
    pub(super) fn request_ended(&mut self, call: CallId, outcome: &Outcome) {
        let Some(pending) = self.pending_requests.remove(&call) else {
            return;
        };
        let is_open = matches!(outcome, Err(CallError::Unknown(_) | CallError::DeadlineExceeded));
        if is_open && pending.calls < CALLS_MAX {
            let after = self.random.between(Duration::ZERO, RETRY_DELAY_MOST);
            self.at(after, WorldEvent::Retry(call.origin, Box::new(pending)));
        } else {
            if outcome.is_ok() && pending.calls > 1 {
                self.log.count("request answered later");
            }
            let request = pending.number;
            self.at(
                Duration::ZERO,
                WorldEvent::Node(call.origin, Box::new(Event::Settle { request })),
            );
        }
    }
}
