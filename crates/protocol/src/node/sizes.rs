//! How large the tables of a node are.

use super::Node;
use crate::route::Route;

/// How many entries a node's tables have: what a test for bounded memory looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Calls that wait for an outcome.
    pub calls: usize,
    /// Places of actors that are remembered.
    pub routes: usize,
    /// Routes that can't change now.
    pub unsettled: usize,
    /// Actors that are, were or will be here.
    pub hosted: usize,
    /// Messages held for actors.
    pub held: usize,
    /// Messages held for the one actor that has most.
    pub held_most: usize,
    /// DedupTable that actors here remember.
    pub requests: usize,
    /// DedupTable that the one actor remembers that has most.
    pub requests_most: usize,
    /// Frames not acknowledged.
    pub unacknowledged: usize,
    /// Directory entries.
    pub entries: usize,
    /// The bytes that they take, the actors' ids included (what a long key has beyond its id is not).
    pub entry_bytes: usize,
    /// Slots that this node owns.
    pub owned_slots: usize,
    /// Slots that this node owns and that are not open.
    pub closed_slots: usize,
    /// Moves away from this node that wait to begin.
    pub moves_waiting: usize,
    /// Moves away from this node that are not decided.
    pub moves_out: usize,
    /// Moves to this node that have not arrived.
    pub moves_in: usize,
}

impl Node {
    /// How large the tables are.
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
