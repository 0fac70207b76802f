//! Outcomes for callers on this node: each call gets exactly one, and it is true.

use std::sync::Arc;

use elastin_types::{CallError, CallId, Message, NodeId, NotDelivered, Outcome, Time, Unknown};

use super::env::{Due, Env};
use crate::bug::Bug;
use crate::{Body, Command, Map};

/// The calls of local callers that have no outcome yet.
// INVARIANT: a call leaves the table in the event that completes it, so no call gets two outcomes.
#[derive(Debug)]
pub(super) struct Calls {
    me: NodeId,
    /// By sequence number.
    pending: Map<u64, PendingCall>,
}

/// A call of a local caller that has no outcome yet.
#[derive(Debug)]
struct PendingCall {
    deadline: Option<Time>,
    /// The node that has the call, as far as this node knows.
    at: NodeId,
    /// Other nodes that may have the call: it was forwarded there, and the receipt is unconfirmed.
    or_at: Vec<NodeId>,
}

impl Calls {
    pub(super) fn new(me: NodeId) -> Self {
        let pending = Map::default();
        Self { me, pending }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    fn get_mut(&mut self, call: CallId) -> Option<&mut PendingCall> {
        let pending = self.pending.get_mut(&call.sequence);
        pending.filter(|_| call.origin == self.me)
    }

    /// Whether a local caller waits for this call.
    pub(super) fn is_pending(&self, call: CallId) -> bool {
        call.origin == self.me && self.pending.contains_key(&call.sequence)
    }

    /// Registers a call of a local caller, which will get an outcome. A tell gets none.
    pub(super) fn expect(&mut self, env: &mut Env, message: &Message) {
        let CallId { origin, sequence } = message.header.call;
        if message.header.one_way || origin != self.me || self.pending.contains_key(&sequence) {
            return;
        }
        let deadline = message.header.deadline;
        if let Some(at) = deadline {
            env.timers.set(at, Due::Call(sequence));
        }
        let call = PendingCall {
            deadline,
            at: self.me,
            or_at: Vec::new(),
        };
        self.pending.insert(sequence, call);
    }

    /// Records that a call is at this node and nowhere else.
    pub(super) fn record_at(&mut self, call: CallId, node: NodeId) {
        if let Some(pending) = self.get_mut(call) {
            pending.at = node;
            pending.or_at.clear();
        }
    }

    /// Records that a call may have reached this node.
    pub(super) fn record_maybe_at(&mut self, call: CallId, node: NodeId) {
        if let Some(pending) = self.get_mut(call)
            && pending.at != node
            && !pending.or_at.contains(&node)
        {
            pending.or_at.push(node);
        }
    }

    /// Records that a node has no calls left: a call that may have been there is at the node it was forwarded to.
    pub(super) fn node_left(&mut self, node: NodeId) {
        for call in self.pending.values_mut() {
            call.or_at.retain(|other| *other != node);
            if call.at == node
                && let Some(other) = call.or_at.pop()
            {
                call.at = other;
            }
        }
    }

    /// The messages of local callers among bodies that were never transmitted: they are still here.
    ///
    /// Forwarded messages of other origins are lost: their origins have learned that they went to the dead node, and
    /// have completed the calls.
    pub(super) fn never_sent(&mut self, bodies: Vec<Body>) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for body in bodies {
            if let Body::Message { message, .. } = body
                && message.header.call.origin == self.me
            {
                self.record_at(message.header.call, self.me);
                messages.push(message);
            }
        }
        messages
    }

    /// Fails every call that may have been at a node that died.
    pub(super) fn node_lost(&mut self, env: &mut Env, node: NodeId) {
        let lost = |call: &PendingCall| call.at == node || call.or_at.contains(&node);
        for (call, is_lost) in self.sorted(lost) {
            if is_lost {
                self.fail_lost(env, call);
            }
        }
    }

    /// Fails a call that was lost in transit or with its node.
    pub(super) fn fail_lost(&mut self, env: &mut Env, call: CallId) {
        let error = match env.planted.is(Bug::DenyLost) {
            true => CallError::NotDelivered(NotDelivered::Unreachable),
            false => CallError::Unknown(Unknown::NodeLost),
        };
        self.complete(env, call, Err(error));
    }

    /// Fails all calls at the end of membership. Only calls that certainly never left are reported as not delivered.
    pub(super) fn fail_all(&mut self, env: &mut Env) {
        let me = self.me;
        for (call, is_here) in self.sorted(|call| call.at == me && call.or_at.is_empty()) {
            let error = match is_here {
                true => CallError::NotDelivered(NotDelivered::Unreachable),
                false => CallError::Unknown(Unknown::NodeLost),
            };
            self.complete(env, call, Err(error));
        }
    }

    /// All pending calls in order, each with a property.
    fn sorted(&self, property: impl Fn(&PendingCall) -> bool) -> Vec<(CallId, bool)> {
        let origin = self.me;
        let calls = self.pending.iter();
        let mut calls: Vec<(CallId, bool)> = calls
            .map(|(sequence, call)| {
                (
                    CallId {
                        origin,
                        sequence: *sequence,
                    },
                    property(call),
                )
            })
            .collect();
        calls.sort_unstable();
        calls
    }

    /// Handles the deadline of a call.
    pub(super) fn on_deadline(&mut self, env: &mut Env, sequence: u64, at: Time) {
        if self
            .pending
            .get(&sequence)
            .is_some_and(|call| call.deadline == Some(at))
        {
            let origin = self.me;
            self.complete(env, CallId { origin, sequence }, Err(CallError::DeadlineExceeded));
        }
    }

    /// Completes a call of a local caller. Later outcomes of the same call are ignored.
    pub(super) fn complete(&mut self, env: &mut Env, call: CallId, outcome: Outcome) {
        if self.forget(env, call) {
            env.command(Command::Complete { call, outcome });
        }
    }

    /// Drops a pending call; returns whether it was pending.
    pub(super) fn forget(&mut self, env: &mut Env, call: CallId) -> bool {
        if call.origin != self.me {
            return false;
        }
        let Some(pending) = self.pending.remove(&call.sequence) else {
            return false;
        };
        if let Some(at) = pending.deadline {
            env.timers.unset(at, Due::Call(call.sequence));
        }
        true
    }

    /// Sends the outcome of a call that was delivered here to its origin.
    pub(super) fn reply(&mut self, env: &mut Env, call: CallId, outcome: Outcome) {
        if call.origin == self.me {
            self.complete(env, call, outcome);
        } else {
            env.send(call.origin, Body::Reply { call, outcome });
        }
    }

    /// Notifies the origin of a message that it is rejected. A local tell gets an outcome too: its caller is the only
    /// party left to notify.
    pub(super) fn reject(&mut self, env: &mut Env, message: &Message, error: CallError) {
        let call = message.header.call;
        if call.origin != self.me {
            let (actor, error) = (message.target.clone(), Box::new(error));
            env.send(call.origin, Body::Rejected { actor, call, error });
        } else if message.header.one_way {
            let outcome = Err(error);
            env.command(Command::Complete { call, outcome });
        } else {
            self.complete(env, call, Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use elastin_types::{ActorId, ActorType, Caller, Header, Method};

    use super::*;
    use crate::Limits;

    const ME: NodeId = NodeId(1);
    const SENT_TO: NodeId = NodeId(2);
    const FORWARDED_TO: NodeId = NodeId(3);
    const CALL: CallId = CallId {
        origin: ME,
        sequence: 1,
    };

    /// A call that was sent to one node, which forwarded it to another.
    fn forwarded() -> (Env, Calls) {
        let (mut env, mut calls) = (Env::new(ME, Limits::default()), Calls::new(ME));
        let message = Message {
            target: ActorId::new(ActorType::of("Folder"), 1),
            header: Header::of_call(CALL, Caller::Client(ME)),
            method: Method::of("open"),
            body: Bytes::new(),
        };
        calls.expect(&mut env, &message);
        calls.record_at(CALL, SENT_TO);
        calls.record_maybe_at(CALL, FORWARDED_TO);
        (env, calls)
    }

    #[test]
    fn a_forwarded_call_is_lost_with_either_node() {
        for dead in [SENT_TO, FORWARDED_TO] {
            let (mut env, mut calls) = forwarded();
            calls.node_lost(&mut env, dead);
            let outcome = Err(CallError::Unknown(Unknown::NodeLost));
            assert_eq!(env.out, [Command::Complete { call: CALL, outcome }]);
            assert!(!calls.is_pending(CALL));
        }
    }

    #[test]
    fn a_call_outlives_a_node_that_left() {
        let (mut env, mut calls) = forwarded();
        calls.node_left(SENT_TO);
        calls.node_lost(&mut env, SENT_TO);
        assert!(env.out.is_empty() && calls.is_pending(CALL));
        calls.node_lost(&mut env, FORWARDED_TO);
        assert!(!calls.is_pending(CALL));
    }
}
