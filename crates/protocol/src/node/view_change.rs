//! Membership changes: dead nodes and new owners of directory slots.

use std::collections::BTreeSet;
use std::sync::Arc;

use elastin_types::{ActorId, Message, NodeId};

use super::Node;
use crate::{Body, Slot, View};

impl Node {
    /// Applies a new view: first the deaths, then the slot owners, then the frames that waited for this view.
    pub(super) fn on_view(&mut self, view: View) {
        let before = self.sessions.view.clone();
        if before.as_ref().is_some_and(|before| before.revision >= view.revision) {
            return;
        }
        let known = before.iter().flat_map(|before| before.members.keys().copied());
        // A session may also exist with a node that joined and left between two views.
        let newcomers = self.sessions.take_newcomers(view.revision);
        let known: BTreeSet<NodeId> = known.chain(self.sessions.peers()).chain(newcomers).collect();
        let gone: Vec<NodeId> = known.into_iter().filter(|node| view.is_dead(*node)).collect();
        self.sessions.view = Some(view);
        for node in &gone {
            self.on_death(*node);
        }
        self.update_slots(before.as_ref());
        if let Some(before) = before {
            self.follow_owners(&before);
        }
        self.drain_loopback();
        for peer in self.sessions.peers() {
            self.handle_frames(peer);
        }
    }

    /// Redirects pending work from old slot owners to new ones.
    fn follow_owners(&mut self, before: &View) {
        let now = self.sessions.view().slots.clone();
        let changed = |actor: &ActorId| {
            let slot = Slot::of(actor);
            before.slots.owner(slot) != now.owner(slot)
        };
        self.hosted_follow_owners(changed);
        self.moves_out_follow_owners(changed);
        self.moves_in_follow_owners(changed);
        self.routes_follow_owners();
    }

    /// Handles the permanent end of a node.
    fn on_death(&mut self, node: NodeId) {
        let never_sent = self.sessions.end(node);
        self.routes_waiting.remove(&node);
        self.leaving_peers.remove(&node);
        self.requests.forget_origin(node);
        let mine = self.messages_to_resend(never_sent);
        self.fail_calls_lost_with(node);
        // Routes come first: messages returned by moves are sent along them.
        self.routes_lost_with(node, mine);
        self.waiting_moves_lost_with(node);
        self.moves_out_lost_with(node);
        self.moves_in_lost_with(node);
        self.grants_lost();
    }

    /// Messages of local callers among the bodies that were never transmitted.
    ///
    /// Forwarded messages of other origins are lost: their origins have learned that they went to the dead node, and
    /// have completed the calls.
    pub(super) fn messages_to_resend(&mut self, bodies: Vec<Body>) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for body in bodies {
            if let Body::Message { message, .. } = body
                && message.header.call.origin == self.sessions.me
            {
                self.call_is_at(message.header.call, self.sessions.me);
                messages.push(message);
            }
        }
        messages
    }
}
