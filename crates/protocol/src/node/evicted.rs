//! The end of a client's membership: each of its calls gets a true outcome.
//!
//! The process continues and rejoins as a new node. Calls sent under the old identity may still run, but no reply can
//! reach them, so calls that may have left are in doubt. Calls that certainly have not left may be retried by the new
//! node.

use elastin_types::{CallError, NotDelivered};

use super::Node;
use crate::Event;

impl Node {
    /// Ends this node's membership. The node, which hosts no actors, takes part in nothing any more.
    pub(super) fn on_evicted(&mut self) {
        self.evicted = true;
        for peer in self.env.peers() {
            let never_sent = self.env.end(peer);
            // Marks them as being here.
            self.calls.never_sent(never_sent);
        }
        self.calls.fail_all(&mut self.env);
    }

    /// Handles an event after the end of membership. Sends are rejected; every other event is ignored.
    pub(super) fn dispatch_evicted(&mut self, event: Event) {
        if let Event::Send { message } = event {
            self.calls.expect(&mut self.env, &message);
            self.reject(&message, CallError::NotDelivered(NotDelivered::Unreachable));
        }
    }
}
