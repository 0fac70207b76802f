//! Changes of membership: who has died, and who owns the directory now.

use std::collections::BTreeSet;
use std::sync::Arc;

use elastin_types::{ActorId, Message, NodeId};

use super::Node;
use crate::{Body, Slot, View};

impl Node {
    /// The membership changed. What depended on the dead is settled first, then who owns the directory, then what waited
    /// for a view this new.
    pub(super) fn on_view(&mut self, view: View) {
        let before = self.sessions.view.clone();
        if before.as_ref().is_some_and(|before| before.revision >= view.revision) {
            return;
        }
        let known = before.iter().flat_map(|before| before.members.keys().copied());
        // A session may also be with a node that came and went between two views.
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

    /// Slots have new owners: whoever waits for an old one turns to the new one.
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

    /// A node has stopped for good.
    fn on_death(&mut self, node: NodeId) {
        let never_sent = self.sessions.end(node);
        self.routes_waiting.remove(&node);
        self.parting_peers.remove(&node);
        self.requests.forget_origin(node);
        let mine = self.messages_to_send_again(never_sent);
        self.calls_lost_with(node);
        // Routes come first: what moves give back is sent along them.
        self.routes_lost_with(node, mine);
        self.waiting_moves_lost_with(node);
        self.moves_out_lost_with(node);
        self.moves_in_lost_with(node);
        self.grants_lost();
    }

    /// Of what certainly never left, the messages of callers here. What was being passed on for others is lost: its origin
    /// has been told that it went to the dead node, and has given the call its outcome.
    pub(super) fn messages_to_send_again(&mut self, bodies: Vec<Body>) -> Vec<Arc<Message>> {
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
