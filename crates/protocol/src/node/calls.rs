//! Outcomes for callers on this node: each call gets exactly one, and it is true.

use std::sync::Arc;

use elastin_types::{CallError, CallId, Message, NodeId, NotDelivered, Outcome, Time, Unknown};

use super::Node;
use crate::bug::Bug;
use crate::timers::Due;
use crate::{Body, Command};

/// A call of a local caller that has no outcome yet.
#[derive(Debug)]
pub(super) struct PendingCall {
    deadline: Option<Time>,
    /// The node that has the call, as far as this node knows.
    at: NodeId,
    /// Other nodes that may have the call: it was forwarded there, and the receipt is unconfirmed.
    or_at: Vec<NodeId>,
}

impl PendingCall {
    /// Whether the call is at this node and cannot be anywhere else.
    pub(super) fn is_only_at(&self, node: NodeId) -> bool {
        self.at == node && self.or_at.is_empty()
    }
}

impl Node {
    /// Registers a call of a local caller, which will get an outcome. A tell gets none.
    pub(super) fn expect_outcome(&mut self, message: &Message) {
        let CallId { origin, sequence } = message.header.call;
        if message.header.one_way || origin != self.sessions.me || self.calls.contains_key(&sequence) {
            return;
        }
        let deadline = message.header.deadline;
        if let Some(at) = deadline {
            self.sessions.timers.set(at, Due::Call(sequence));
        }
        let call = PendingCall {
            deadline,
            at: self.sessions.me,
            or_at: Vec::new(),
        };
        self.calls.insert(sequence, call);
    }

    /// Records that a call is at this node and nowhere else.
    pub(super) fn call_is_at(&mut self, call: CallId, node: NodeId) {
        if call.origin == self.sessions.me
            && let Some(pending) = self.calls.get_mut(&call.sequence)
        {
            pending.at = node;
            pending.or_at.clear();
        }
    }

    /// Records that a call may have reached this node.
    pub(super) fn call_may_be_at(&mut self, call: CallId, node: NodeId) {
        if call.origin == self.sessions.me
            && let Some(pending) = self.calls.get_mut(&call.sequence)
            && pending.at != node
            && !pending.or_at.contains(&node)
        {
            pending.or_at.push(node);
        }
    }

    /// Fails every call that may have been at a node that died.
    pub(super) fn fail_calls_lost_with(&mut self, node: NodeId) {
        let lost = |call: &PendingCall| call.at == node || call.or_at.contains(&node);
        let mut sequences: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| lost(call))
            .map(|(sequence, _)| *sequence)
            .collect();
        sequences.sort_unstable();
        for sequence in sequences {
            self.fail_lost_call(CallId {
                origin: self.sessions.me,
                sequence,
            });
        }
    }

    /// Records that a node has no calls left: a call that may have been there is at the node it was forwarded to.
    pub(super) fn calls_left(&mut self, node: NodeId) {
        for call in self.calls.values_mut() {
            call.or_at.retain(|other| *other != node);
            if call.at == node
                && let Some(other) = call.or_at.pop()
            {
                call.at = other;
            }
        }
    }

    /// Fails a call that was lost in transit or with its node.
    pub(super) fn fail_lost_call(&mut self, call: CallId) {
        let error = match self.sessions.planted.is(Bug::DenyLost) {
            true => CallError::NotDelivered(NotDelivered::Unreachable),
            false => CallError::Unknown(Unknown::NodeLost),
        };
        self.complete(call, Err(error));
    }

    /// Handles the deadline of a call.
    pub(super) fn on_call_deadline(&mut self, sequence: u64, at: Time) {
        if self.calls.get(&sequence).is_some_and(|call| call.deadline == Some(at)) {
            let call = CallId {
                origin: self.sessions.me,
                sequence,
            };
            self.complete(call, Err(CallError::DeadlineExceeded));
        }
    }

    /// Completes a call of a local caller. Later outcomes of the same call are ignored.
    pub(super) fn complete(&mut self, call: CallId, outcome: Outcome) {
        if self.forget_call(call) {
            self.sessions.command(Command::Complete { call, outcome });
        }
    }

    /// Drops a pending call; returns whether it was pending.
    pub(super) fn forget_call(&mut self, call: CallId) -> bool {
        if call.origin != self.sessions.me {
            return false;
        }
        let Some(pending) = self.calls.remove(&call.sequence) else {
            return false;
        };
        if let Some(at) = pending.deadline {
            self.sessions.timers.unset(at, Due::Call(call.sequence));
        }
        true
    }

    /// Sends the outcome of a call that was delivered here to its origin.
    pub(super) fn reply(&mut self, call: CallId, outcome: Outcome) {
        if call.origin == self.sessions.me {
            self.complete(call, outcome);
        } else {
            self.sessions.send(call.origin, Body::Reply { call, outcome });
        }
    }

    /// Whether a local caller waits for this call.
    pub(super) fn is_pending(&self, call: CallId) -> bool {
        call.origin == self.sessions.me && self.calls.contains_key(&call.sequence)
    }

    /// Rejects a message and notifies its origin. A local tell gets an outcome too: its caller is the only party left
    /// to notify.
    pub(super) fn reject(&mut self, message: Arc<Message>, error: CallError) {
        let call = message.header.call;
        if call.origin != self.sessions.me {
            let (actor, error) = (message.target.clone(), Box::new(error));
            self.sessions.send(call.origin, Body::Rejected { actor, call, error });
            return;
        }
        if message.header.one_way {
            let outcome = Err(error);
            self.sessions.command(Command::Complete { call, outcome });
        } else {
            self.complete(call, Err(error));
        }
        self.on_message_gone(&message.target, call);
    }
}
