//! The end of a client's membership: each of its calls ends, and truthfully.
//!
//! The process goes on, and will be a member again as a new node. What it has sent as this one may still run, and no answer
//! would find it: calls that may have left are in doubt. Those that certainly have not may be made again by the new one.

use std::sync::Arc;

use elastin_types::{CallError, CallId, Message, NotDelivered, Unknown};

use super::Node;
use crate::Event;

impl Node {
    /// This node, which hosts nobody, is no longer a member: it takes part in nothing any more.
    pub(super) fn on_evicted(&mut self) {
        self.evicted = true;
        for peer in self.sessions.peers() {
            let never_sent = self.sessions.end(peer);
            // They count as being here.
            self.messages_to_send_again(never_sent);
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

    /// Something happens to a node that is no longer a member. Whoever sends is told so; everything else is over.
    pub(super) fn dispatch_evicted(&mut self, event: Event) {
        if let Event::Send { message } = event {
            self.refuse(message);
        }
    }

    /// Turns a message of a caller here away that has been nowhere.
    fn refuse(&mut self, message: Arc<Message>) {
        self.expect_outcome(&message);
        self.turn_away(message, CallError::NotDelivered(NotDelivered::Unreachable));
    }
}
