//! Requests: calls that a client makes again while it can't tell what became of them.

use std::time::Duration;

use elastin_protocol::Event;
use elastin_types::{ActorId, CallError, CallId, Caller, NodeId, Outcome};

use super::callers::Sending;
use super::{Happening, World};

/// How often a client calls for one request.
const CALLS_MAX: u32 = 4;
/// How long it waits at most before it calls again.
const AGAIN_MOST: Duration = Duration::from_millis(20);

/// A call of a request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    sending: Sending,
    number: u64,
    /// The calls made so far.
    calls: u32,
}

impl World {
    /// A client makes a request of an actor, which tells others in turn.
    pub(crate) fn client_requests(&mut self, client: NodeId, to: &ActorId, tells: Vec<ActorId>) {
        let process = self.processes.get_mut(&client).expect("the client lives");
        let Some(number) = process.node.begin_request() else {
            return;
        };
        self.log.count("request");
        let sending = Sending {
            caller: Caller::Client(client),
            sender_life: 0,
            to: to.clone(),
            tells,
            one_way: false,
            request: Some(number),
        };
        let calls = 0;
        let asked = Asked { sending, number, calls };
        self.ask(client, asked);
    }

    /// Calls for a request, for the first time or again.
    pub(super) fn ask(&mut self, client: NodeId, mut asked: Asked) {
        if !self.lives(client) {
            return;
        }
        asked.calls += 1;
        if asked.calls > 1 {
            self.log.count("request made again");
        }
        // The call may end while it is made.
        let sequence = self.next_call.get(&client).copied().unwrap_or(0) + 1;
        let call = CallId {
            origin: client,
            sequence,
        };
        let sending = asked.sending.clone();
        self.asked.insert(call, asked);
        let sent = self.send(client, sending);
        assert_eq!(call, sent, "calls are numbered in order");
    }

    /// A call has ended. If it was one of a request, and its client can't tell whether it ran, it calls again.
    pub(super) fn request_ended(&mut self, call: CallId, outcome: &Outcome) {
        let Some(asked) = self.asked.remove(&call) else {
            return;
        };
        let is_open = matches!(outcome, Err(CallError::Unknown(_) | CallError::DeadlineExceeded));
        if is_open && asked.calls < CALLS_MAX {
            let after = self.random.between(Duration::ZERO, AGAIN_MOST);
            self.at(after, Happening::Again(call.origin, Box::new(asked)));
        } else {
            if outcome.is_ok() && asked.calls > 1 {
                self.log.count("request answered later");
            }
            let request = asked.number;
            self.at(
                Duration::ZERO,
                Happening::Node(call.origin, Box::new(Event::Settle { request })),
            );
        }
    }
}
