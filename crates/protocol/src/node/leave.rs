//! Orderly departure of a drained node, without losing messages.
//!
//! ```text
//!  leaving node                               each other member
//!   │ Leaving: I host no actors ───────────────► │ resolves actors through the directory instead
//!   │ ◄───────── returned messages that were sent before; the acknowledgement
//!   │ Parted: all forwards have arrived ───────► │ knows that none of its calls is at the leaving node
//!   │ ◄───────────────────────────────────────── the acknowledgement
//!   │ leaves
//! ```
//!
//! A member that acknowledges `Leaving` has sent its last message here. Once all members have done so, and have
//! acknowledged the messages forwarded to them, nothing can be lost with this node.

use elastin_types::{ActorId, NodeId};

use super::Node;
use crate::Body;
use crate::bug::Bug;
use crate::hosted::{Hosted, Phase};
use crate::route::{Path, Place};

/// Progress of a node's departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LeavePhase {
    /// The node stays.
    #[default]
    No,
    /// The node has announced that it hosts no actors.
    Begun,
    /// The node has announced that all messages it forwarded have arrived.
    Ended,
}

impl Node {
    /// Starts or continues the departure of this node, which hosts no actors any more. The view must already mark it as
    /// accepting none.
    pub(super) fn on_leave(&mut self) {
        match self.leave_phase {
            LeavePhase::No => {
                self.leave_phase = LeavePhase::Begun;
                if !self.sessions.planted.is(Bug::GoSilently) {
                    self.send_to_all(&Body::Leaving);
                }
            }
            LeavePhase::Begun if self.is_clear() => {
                self.leave_phase = LeavePhase::Ended;
                self.send_to_all(&Body::Parted);
            }
            LeavePhase::Begun | LeavePhase::Ended => {}
        }
    }

    /// Whether a departure requested by [`Event::Leave`](crate::Event::Leave) is complete: no peer sends to this node any
    /// more, so the process may stop.
    pub fn may_go(&self) -> bool {
        self.leave_phase == LeavePhase::Ended && self.is_clear()
    }

    /// Whether nothing is left here and all frames are acknowledged.
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

    /// Handles a peer's announcement that it is leaving and hosts no actors.
    pub(super) fn on_leaving(&mut self, peer: NodeId) {
        self.leaving_peers.insert(peer);
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

    /// Handles a peer's announcement that all messages it forwarded have arrived: no call is at that peer any more.
    pub(super) fn on_parted(&mut self, peer: NodeId) {
        self.calls_left(peer);
        for route in self.routes.values_mut() {
            if let Path::Asking(asking) = &mut route.path {
                asking.at.retain(|node| *node != peer);
            }
        }
    }

    /// Whether a node is leaving, so that no path may lead to it.
    pub(super) fn is_leaving(&self, node: NodeId) -> bool {
        self.leaving_peers.contains(&node)
    }
}
