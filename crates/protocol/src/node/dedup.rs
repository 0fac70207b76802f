//! Calls that are made again because their caller could not tell what became of them: of all calls of one request the
//! receiver's activation runs one. See `requests` for what a host remembers.

use std::collections::BTreeSet;

use elastin_types::{ActorId, CallId, Message, Outcome};

use super::Node;
use crate::bug::Bug;
use crate::chunking::in_parts;
use crate::dedup_table::Arrival;
use crate::{MoveStep, MovedRequest};

/// A request of a caller here that is not settled, as far as others may know.
#[derive(Debug, Default)]
pub(super) struct OpenRequest {
    /// Whose it is; known from its first call on.
    actor: Option<ActorId>,
    /// Its caller is done with it.
    is_settled: bool,
}

impl OpenRequest {
    /// Whether no call of it can come to an activation that knows nothing of it: none will be made, and nothing is on its way to
    /// its actor that names no activation and might be one.
    fn is_over(&self, busy_routes: &BTreeSet<ActorId>) -> bool {
        self.is_settled && !self.actor.as_ref().is_some_and(|actor| busy_routes.contains(actor))
    }
}

impl Node {
    /// Begins a request of a caller here and returns its number, or nothing if too many are open. Its calls are
    /// [sent](crate::Event::Send) with that number in their headers, each under a call id of its own and never straight
    /// into a mailbox; [`Settle`](crate::Event::Settle) ends it.
    pub fn begin_request(&mut self) -> Option<u64> {
        if self.open_requests.len() >= self.sessions.limits.requests_open {
            let Self {
                open_requests,
                busy_routes,
                ..
            } = self;
            open_requests.retain(|_, open| !open.is_over(busy_routes));
        }
        if self.open_requests.len() >= self.sessions.limits.requests_open {
            return None;
        }
        self.last_request += 1;
        self.open_requests.insert(self.last_request, OpenRequest::default());
        Some(self.last_request)
    }

    pub(super) fn on_settle(&mut self, request: u64) {
        if let Some(open) = self.open_requests.get_mut(&request) {
            open.is_settled = true;
            if open.is_over(&self.busy_routes) {
                self.open_requests.remove(&request);
            }
        }
    }

    /// The number below which all requests are over.
    fn settled_below(&mut self) -> u64 {
        while let Some(first) = self.open_requests.first_entry() {
            if !first.get().is_over(&self.busy_routes) {
                return *first.key();
            }
            first.remove();
        }
        self.last_request + 1
    }

    /// Tells whoever gets this call of a request which requests its callers are done with.
    pub(super) fn stamp(&mut self, message: &mut Message) {
        if let Some(request) = &mut message.header.request {
            let open = self.open_requests.get_mut(&request.number);
            let open = open.filter(|open| !open.is_settled);
            let open = open.expect("a request is begun before its first call, and not settled before its last");
            open.actor.get_or_insert_with(|| message.target.clone());
            request.settled_below = match self.sessions.planted.is(Bug::SettleTooEarly) {
                true => request.number,
                false => self.settled_below(),
            };
        }
    }

    /// Whether a call of a request that has come to its actor runs. Otherwise it gets the outcome of the one that did.
    pub(super) fn is_to_run(&mut self, message: &Message) -> bool {
        if self.sessions.is_dead(message.header.call.origin) {
            // It was held up on its way by another node. Nobody waits for it, and what was known of its request is forgotten.
            return false;
        }
        match self.requests.arrives(message, &self.sessions.limits) {
            Arrival::Runs => true,
            Arrival::Joins => false,
            Arrival::Over(outcome) => {
                self.reply(message.header.call, outcome);
                false
            }
        }
    }

    /// A call that was delivered here has ended.
    pub(super) fn on_replied(&mut self, call: CallId, outcome: Outcome) {
        let (call, outcome) = self.requests.ended(call, outcome, &self.sessions.limits);
        self.reply(call, outcome);
    }

    /// Tells the target of a move what the actor knows of requests. No turn runs any more, so what is in the queue has not
    /// run; and the target must know the rest before it is decided that the actor is there.
    pub(super) fn stage_requests(&mut self, actor: &ActorId) {
        if self.sessions.planted.is(Bug::ForgetRequests) {
            return;
        }
        for requests in in_parts(
            self.requests.tell(actor),
            self.sessions.limits.chunk_bytes,
            MovedRequest::bytes,
        ) {
            self.tell_target(actor, MoveStep::Requests(requests));
        }
    }
}
