//! How a node that has been emptied goes without a message being lost.
//!
//! Others may still have its address for actors that it had. So it says to each of them that it hosts nobody; they turn to the
//! directory for those actors, and it gives back what they sent before. Each acknowledgement says that nothing more comes from
//! there: when all have acknowledged everything, nobody sends to it any more, and it may go.

use elastin_types::{ActorId, NodeId};

use super::Node;
use crate::Body;
use crate::bug::Bug;
use crate::hosted::{Departed, Hosted, Phase};
use crate::route::{Path, Place};

impl Node {
    /// This node is to go, and hosts nobody any more. The view has to say that it takes nobody either.
    pub(super) fn on_part(&mut self) {
        if std::mem::replace(&mut self.parting, true) || self.links.planted.is(Bug::GoSilently) {
            return;
        }
        let me = self.links.me;
        let others = self.links.view.iter().flat_map(|view| view.members.keys().copied());
        let others: Vec<NodeId> = others.filter(|node| *node != me).collect();
        for node in others {
            self.links.say(node, Body::Parting);
        }
    }

    /// Whether this node was told to [part](crate::Event::Part), and nobody sends anything to it any more: it may go.
    pub fn may_go(&self) -> bool {
        // That nothing is unacknowledged says that all have heard it, and have got back what they sent.
        let is_gone = |hosted: &Hosted| matches!(&hosted.phase, Phase::Departed(Departed { until: Some(_), .. }));
        let sizes = self.table_sizes();
        self.parting
            && self.hosted.values().all(is_gone)
            && self.settling.is_empty()
            && sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.owned_slots == 0
    }

    /// A peer is about to go, and hosts nobody.
    pub(super) fn on_parting(&mut self, peer: NodeId) {
        self.parting_peers.insert(peer);
        let mut concerned: Vec<ActorId> = Vec::new();
        for (actor, route) in &mut self.routes {
            let Path::Direct { node, leaving, .. } = &mut route.path else {
                continue;
            };
            if let Some(leaving) = leaving
                && matches!(leaving.next, Place::Host(next, _) if next == peer)
            {
                leaving.next = Place::Directory;
            }
            if *node == peer && leaving.is_none() {
                concerned.push(actor.clone());
            }
        }
        concerned.sort_unstable();
        for actor in concerned {
            self.leave_path(&actor, Place::Directory);
        }
    }

    /// Whether a node is about to go, so that no path may lead to it.
    pub(super) fn is_parting(&self, node: NodeId) -> bool {
        self.parting_peers.contains(&node)
    }
}
