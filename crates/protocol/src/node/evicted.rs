//! The end of a client's membership: each of its calls gets a true outcome.
//!
//! The process continues and rejoins as a new node. Calls sent under the old identity may still run, but no reply can
//! reach them, so calls that may have left are in doubt. Calls that certainly have not left may be retried by the new
//! node.

use std::sync::Arc;

use elastin_types::{CallError, CallId, Message, NotDelivered, Unknown};

use super::Node;
use crate::Event;

impl Node {
    /// Ends this node's membership. The node, which hosts no actors, takes part in nothing any more.
    pub(super) fn on_evicted(&mut self) {
        self.evicted = true;
        for peer in self.sessions.peers() {
            let never_sent = self.sessions.end(peer);
            // Marks them as being here.
            self.messages_to_resend(never_sent);
        }
        let mut pending: Vec<(u64, bool)> = self
            .calls
            .iter()
            .map(|(sequence, call)| (*sequence, call.is_only_at(self.sessions.me)))
            .collect();
        pending.sort_unstable();
        for (sequence, is_here) in pending {
            let error = match is_here {
                true => CallError::NotDelivered(NotDelivered::Unreachable),
                false => CallError::Unknown(Unknown::NodeLost),
            };
            let origin = self.sessions.me;
            self.complete(CallId { origin, sequence }, Err(error));
        }
    }

    /// Handles an event after the end of membership. Sends are rejected; every other event is ignored.
    pub(super) fn dispatch_evicted(&mut self, event: Event) {
        if let Event::Send { message } = event {
            self.refuse(message);
        }
    }

    /// Rejects a message of a local caller that was never sent.
    fn refuse(&mut self, message: Arc<Message>) {
        self.expect_outcome(&message);
        self.reject(message, CallError::NotDelivered(NotDelivered::Unreachable));
    }
}
