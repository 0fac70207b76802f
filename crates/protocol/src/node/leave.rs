//! How a node that has been emptied goes without a message being lost.
//!
//! ```text
//!  it                                         each of the others
//!   │ parting: I host nobody ──────────────────► │ turns to the directory for actors that it was thought to have
//!   │ ◄────────────────────── what was sent before, and comes back; the acknowledgement
//!   │ parted: all that I passed on has arrived ► │ knows that no call of its own is there
//!   │ ◄───────────────────────────────────────── the acknowledgement
//!   │ goes
//! ```
//!
//! Who acknowledges the first has sent its last message here. When all have, and have acknowledged what this node passed on to
//! them, nothing can be lost with it.

use elastin_types::{ActorId, NodeId};

use super::Node;
use crate::Body;
use crate::bug::Bug;
use crate::hosted::{Hosted, Phase};
use crate::route::{Path, Place};

/// How far a node is that is about to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DrainPhase {
    /// It stays.
    #[default]
    No,
    /// It has said that it hosts nobody.
    Begun,
    /// It has said that all that it passed on has arrived.
    Ended,
}

impl Node {
    /// This node is to go, and hosts nobody any more. The view has to send that it takes nobody either.
    pub(super) fn on_part(&mut self) {
        match self.parting {
            DrainPhase::No => {
                self.parting = DrainPhase::Begun;
                if !self.sessions.planted.is(Bug::GoSilently) {
                    self.send_to_all(&Body::Leaving);
                }
            }
            DrainPhase::Begun if self.is_clear() => {
                self.parting = DrainPhase::Ended;
                self.send_to_all(&Body::Parted);
            }
            DrainPhase::Begun | DrainPhase::Ended => {}
        }
    }

    /// Whether this node was told to [part](crate::Event::Part), and nobody sends anything to it any more: it may go.
    pub fn may_go(&self) -> bool {
        self.parting == DrainPhase::Ended && self.is_clear()
    }

    /// Whether nothing is here any more, and all that was said has been heard.
    fn is_clear(&self) -> bool {
        let is_gone = |hosted: &Hosted| matches!(hosted.phase(), Phase::Departed(departed) if departed.until.is_some());
        let sizes = self.table_sizes();
        self.hosted.values().all(is_gone)
            && self.settling.is_empty()
            && sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.owned_slots == 0
    }

    fn send_to_all(&mut self, body: &Body) {
        let me = self.sessions.me;
        let others = self.sessions.view.iter().flat_map(|view| view.members.keys().copied());
        let others: Vec<NodeId> = others.filter(|node| *node != me).collect();
        for node in others {
            self.sessions.send(node, body.clone());
        }
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

    /// All that a peer has passed on has arrived where it said it went: nothing is at the peer any more.
    pub(super) fn on_parted(&mut self, peer: NodeId) {
        self.calls_left(peer);
        for route in self.routes.values_mut() {
            if let Path::Asking(asking) = &mut route.path {
                asking.at.retain(|node| *node != peer);
            }
        }
    }

    /// Whether a node is about to go, so that no path may lead to it.
    pub(super) fn is_parting(&self, node: NodeId) -> bool {
        self.parting_peers.contains(&node)
    }
}
