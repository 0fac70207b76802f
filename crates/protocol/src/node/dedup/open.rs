//! Requests of callers on this node, whose calls may be retried.

use std::collections::BTreeMap;

use elastin_types::{ActorId, Message};

use crate::bug::Bug;
use crate::node::env::Env;
use crate::node::routing::Routing;

/// Requests of local callers whose calls may still be retried.
#[derive(Debug, Default)]
pub(in crate::node) struct OpenRequests {
    open: BTreeMap<u64, OpenRequest>,
    /// The number of the last request that was begun.
    last: u64,
}

/// A request of a local caller that may not be reported as settled yet.
#[derive(Debug, Default)]
struct OpenRequest {
    /// The request's target; known from its first call on.
    actor: Option<ActorId>,
    /// Whether the caller will make no further call.
    is_settled: bool,
}

impl OpenRequest {
    /// Whether no call of the request can reach an activation without a record of it. That requires two things: the
    /// caller makes no further call, and no call without a target epoch is in flight to the actor.
    fn is_over(&self, routing: &Routing) -> bool {
        self.is_settled && !self.actor.as_ref().is_some_and(|actor| routing.is_busy(actor))
    }
}

impl OpenRequests {
    /// Begins a request and returns its number, or `None` if this many are open.
    pub(in crate::node) fn begin(&mut self, routing: &Routing, max: usize) -> Option<u64> {
        if self.open.len() >= max {
            self.open.retain(|_, open| !open.is_over(routing));
        }
        if self.open.len() >= max {
            return None;
        }
        self.last += 1;
        self.open.insert(self.last, OpenRequest::default());
        Some(self.last)
    }

    /// Records that the caller makes no further call of a request.
    pub(in crate::node) fn settle(&mut self, routing: &Routing, request: u64) {
        if let Some(open) = self.open.get_mut(&request) {
            open.is_settled = true;
            if open.is_over(routing) {
                self.open.remove(&request);
            }
        }
    }

    /// The number below which all requests are over.
    fn settled_below(&mut self, routing: &Routing) -> u64 {
        while let Some(first) = self.open.first_entry() {
            if !first.get().is_over(routing) {
                return *first.key();
            }
            first.remove();
        }
        self.last + 1
    }

    /// Adds to a call of a request the number below which its caller's requests are settled.
    pub(in crate::node) fn stamp(&mut self, env: &Env, routing: &Routing, message: &mut Message) {
        if let Some(request) = &mut message.header.request {
            let open = self.open.get_mut(&request.number);
            let open = open.filter(|open| !open.is_settled);
            let open = open.expect("a request is begun before its first call, and not settled before its last");
            open.actor.get_or_insert_with(|| message.target.clone());
            request.settled_below = match env.planted.is(Bug::SettleTooEarly) {
                true => request.number,
                false => self.settled_below(routing),
            };
        }
    }
}
