//! Sizes of a node's tables.

use super::Node;
use crate::route::Route;

/// Entry counts of a node's tables, for tests of bounded memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Calls without an outcome.
    pub calls: usize,
    /// Cached locations of actors.
    pub routes: usize,
    /// Routes with messages in flight or held.
    pub unsettled: usize,
    /// Actors that are, were or will be hosted here.
    pub hosted: usize,
    /// Messages held for actors.
    pub held: usize,
    /// Messages held for the actor that has the most.
    pub held_most: usize,
    /// Requests remembered by actors hosted here.
    pub requests: usize,
    /// Requests remembered by the actor that has the most.
    pub requests_most: usize,
    /// Unacknowledged frames.
    pub unacknowledged: usize,
    /// Directory entries.
    pub entries: usize,
    /// Bytes of the directory entries including actor ids, but without the part of long keys stored outside the id.
    pub entry_bytes: usize,
    /// Slots owned by this node.
    pub owned_slots: usize,
    /// Owned slots that are not open.
    pub closed_slots: usize,
    /// Moves away from this node that wait to begin.
    pub moves_waiting: usize,
    /// Undecided moves away from this node.
    pub moves_out: usize,
    /// Moves to this node that have not completed.
    pub moves_in: usize,
}

impl Node {
    /// Current sizes of this node's tables.
    pub fn table_sizes(&self) -> TableSizes {
        let unsettled = |route: &&Route| !route.is_quiet();
        let hosted = self.hosted.values().map(|hosted| hosted.held().len());
        let routes = self.routes.values().map(|route| route.held.len());
        TableSizes {
            calls: self.calls.len(),
            routes: self.routes.len(),
            unsettled: self.routes.values().filter(unsettled).count(),
            hosted: self.hosted.len(),
            held: self.hosted.values().map(|hosted| hosted.held().len()).sum::<usize>()
                + self.routes.values().map(|route| route.waiting().count()).sum::<usize>(),
            held_most: hosted.chain(routes).max().unwrap_or(0),
            requests: self.requests.len(),
            requests_most: self.requests.most(),
            unacknowledged: self.sessions.unacknowledged().map(|(_, bodies)| bodies.len()).sum(),
            entries: self.slots.values().map(|slot| slot.entries.len()).sum(),
            entry_bytes: self.slots.values().map(|slot| slot.entries.bytes()).sum(),
            owned_slots: self.slots.len(),
            moves_waiting: self.moves_waiting.len(),
            moves_out: self.moving_out.len(),
            moves_in: self.moving_in.len(),
            closed_slots: self.closed_slots.len(),
        }
    }
}
