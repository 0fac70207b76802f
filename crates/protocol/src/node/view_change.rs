//! Membership changes: dead nodes and new owners of directory slots.

use std::collections::BTreeSet;

use elastin_types::{ActorId, NodeId};

use super::Node;
use crate::{Slot, View};

impl Node {
    /// Applies a new view: first the deaths, then the slot owners, then the frames that waited for this view.
    pub(super) fn on_view(&mut self, view: View) {
        let before = self.env.view.clone();
        if before.as_ref().is_some_and(|before| before.revision >= view.revision) {
            return;
        }
        let known = before.iter().flat_map(|before| before.members.keys().copied());
        // A session may also exist with a node that joined and left between two views.
        let newcomers = self.env.take_newcomers(view.revision);
        let known: BTreeSet<NodeId> = known.chain(self.env.peers()).chain(newcomers).collect();
        let gone: Vec<NodeId> = known.into_iter().filter(|node| view.is_dead(*node)).collect();
        self.env.view = Some(view);
        for node in gone {
            self.on_death(node);
        }
        for no_room in self.directory.update(&mut self.env, before.as_ref()) {
            self.reject_if_full(Err(no_room));
        }
        if let Some(before) = before {
            self.follow_owners(&before);
        }
        self.drain_loopback();
        for peer in self.env.peers() {
            self.handle_frames(peer);
        }
    }

    /// Redirects pending work from old slot owners to new ones.
    fn follow_owners(&mut self, before: &View) {
        let now = self.env.view().slots.clone();
        let changed = |actor: &ActorId| {
            let slot = Slot::of(actor);
            before.slots.owner(slot) != now.owner(slot)
        };
        self.hosting_follows_owners(changed);
        self.moves_out.follow_owners(&mut self.env, &self.hosting, changed);
        self.moves_in.follow_owners(&mut self.env, &self.hosting, changed);
        for actor in self.routing.take_blocked() {
            let change = self.routing.unblock(&actor);
            self.apply_path(change);
        }
    }

    /// Redirects unsent reports, and messages that waited for an old owner's answer, to the new slot owners.
    pub(super) fn hosting_follows_owners(&mut self, changed: impl Fn(&ActorId) -> bool) {
        for actor in self.hosting.unsettled(changed) {
            let effect = self.hosting.follow_owner(&mut self.env, &actor);
            self.apply(effect);
        }
    }

    /// Handles the permanent end of a node.
    fn on_death(&mut self, node: NodeId) {
        let never_sent = self.env.end(node);
        self.hosting.dedup().forget_origin(node);
        let never_sent = self.calls.never_sent(never_sent);
        self.calls.node_lost(&mut self.env, node);
        // Routes come first: messages returned by moves are sent along them.
        for change in self.routing.on_death(node, &never_sent) {
            self.apply_path(Some(change));
        }
        self.moves_out.on_death(&mut self.env, &mut self.hosting, node);
        for actor in self.moves_in.actors() {
            let effect = self.moves_in.on_death(&mut self.env, &mut self.hosting, node, &actor);
            self.apply(effect);
        }
        // A grant may have been lost with the node.
        for (actor, epoch) in self.hosting.expected() {
            let effect = self.hosting.give_up_grant(&mut self.env, &actor, epoch);
            self.apply(effect);
        }
    }
}
