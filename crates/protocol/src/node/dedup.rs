//! Deduplication of retried calls: an activation runs at most one of the calls of a request.
//!
//! Callers retry calls whose outcome is unknown. [`DedupTable`](crate::dedup_table::DedupTable) has the records kept by
//! hosts.

use std::collections::BTreeSet;

use elastin_types::{ActorId, CallId, Message, Outcome};

use super::Node;
use crate::bug::Bug;
use crate::chunking::in_parts;
use crate::dedup_table::Arrival;
use crate::{MoveStep, MovedRequest};

/// A request of a local caller that may not be reported as settled yet.
#[derive(Debug, Default)]
pub(super) struct OpenRequest {
    /// The request's target; known from its first call on.
    actor: Option<ActorId>,
    /// Whether the caller will make no further call.
    is_settled: bool,
}

impl OpenRequest {
    /// Whether no call of the request can reach an activation without a record of it. That requires two things: the
    /// caller makes no further call, and no call without a target epoch is in flight to the actor.
    fn is_over(&self, busy_routes: &BTreeSet<ActorId>) -> bool {
        self.is_settled && !self.actor.as_ref().is_some_and(|actor| busy_routes.contains(actor))
    }
}

impl Node {
    /// Begins a request of a local caller and returns its number, or `None` if too many are open.
    ///
    /// Its calls are [sent](crate::Event::Send) with that number in their headers. Each has its own call id and none is
    /// enqueued directly into a mailbox. [`Settle`](crate::Event::Settle) ends the request.
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

    /// Adds to a call of a request the number below which its caller's requests are settled.
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

    /// Whether to run a call of a request that has reached its actor. A duplicate gets the outcome of the call that
    /// ran.
    pub(super) fn should_run(&mut self, message: &Message) -> bool {
        if self.sessions.is_dead(message.header.call.origin) {
            // Another node delayed the call. Its caller is dead, and the record of its request has been dropped.
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

    /// Handles the outcome of a call that was delivered here.
    pub(super) fn on_replied(&mut self, call: CallId, outcome: Outcome) {
        let (call, outcome) = self.requests.ended(call, outcome, &self.sessions.limits);
        self.reply(call, outcome);
    }

    /// Sends the actor's deduplication records to the target of its move.
    ///
    /// No turn runs any more, so calls in the queue have not run. The target must have the records before the move is
    /// decided.
    pub(super) fn stage_requests(&mut self, actor: &ActorId) {
        if self.sessions.planted.is(Bug::ForgetRequests) {
            return;
        }
        for requests in in_parts(
            self.requests.hand_over(actor),
            self.sessions.limits.chunk_bytes,
            MovedRequest::bytes,
        ) {
            self.send_to_target(actor, MoveStep::Requests(requests));
        }
    }
}
