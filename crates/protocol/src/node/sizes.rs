//! Sizes of a node's tables.

use super::Node;

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
        let (entries, entry_bytes) = self.directory.entries();
        let mut sizes = TableSizes {
            calls: self.calls.len(),
            unacknowledged: self.env.unacknowledged().map(|(_, bodies)| bodies.len()).sum(),
            entries,
            entry_bytes,
            owned_slots: self.directory.len(),
            closed_slots: self.directory.closed(),
            moves_waiting: self.moves_out.waiting(),
            moves_out: self.moves_out.undecided(),
            moves_in: self.moves_in.len(),
            ..TableSizes::default()
        };
        self.hosting.measure(&mut sizes);
        self.routing.measure(&mut sizes);
        sizes
    }
}
