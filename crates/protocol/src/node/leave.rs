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

use elastin_types::NodeId;

use super::Node;
use super::routing::Place;
use crate::Body;
use crate::bug::Bug;

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
                if !self.env.planted.is(Bug::GoSilently) {
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
        let sizes = self.table_sizes();
        self.hosting.is_clear()
            && self.moves_out.settling.is_empty()
            && sizes.calls + sizes.unsettled + sizes.held + sizes.unacknowledged + sizes.owned_slots == 0
    }

    fn send_to_all(&mut self, body: &Body) {
        let me = self.env.me;
        let others = self.env.view.iter().flat_map(|view| view.members.keys().copied());
        let others: Vec<NodeId> = others.filter(|node| *node != me).collect();
        for node in others {
            self.env.send(node, body.clone());
        }
    }

    /// Handles a peer's announcement that it is leaving and hosts no actors.
    pub(super) fn on_leaving(&mut self, peer: NodeId) {
        for actor in self.routing.on_leaving(peer) {
            self.leave_path(&actor, Place::Directory);
        }
    }
}
